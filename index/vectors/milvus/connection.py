"""The connection to a Milvus: its address, its requests with their limits of time, its errors.

This folder alone imports pymilvus, and only when it is used.

A Milvus Lite runs in this process: its database is a folder, which one process at a time has open,
and every collection of a server shares it.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from index.errors import VectorEngineError
from index.optional_dependencies import MissingExtraError, require_extra
from index.vectors.rwlock import ReadersWriterLock

if TYPE_CHECKING:
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

DEFAULT_PORT = 19530
OLDEST_SERVER = (2, 3)  # the first that replaces vectors in one request
OLDEST_WITH_WORDS = (2, 4)  # the first with sparse vectors
LITE_VERSION = "milvus_lite-3."
LITE_ENDING = ".db"

_log = logging.getLogger(__name__)

_UNREACHABLE = 2  # the code of pymilvus
# pymilvus pings every ten seconds. A Milvus Lite hangs up on many pings, and a request of that
# moment fails; in the same process there is nothing to find out by a ping.
_WITHOUT_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1}
_TLS = "milvus+tls"
_FORMS = "milvus://HOST:PORT/DATABASE, milvus+tls://HOST:PORT/DATABASE or milvus:///FOLDER.db"


@dataclass(frozen=True, slots=True)
class MilvusAddress:
    """Where a Milvus is, and how long it may take.

    Attributes:
        uri: of a server, or the path of the folder of a Milvus Lite.
        database: of a server; empty for its default one.
        token: USER:PASSWORD or a token; empty without. Never printed.
        seconds: that a request may take.
        load_seconds: that writing to its disk, and building an index, may take.
        words: whether it holds the words of documents, too.
    """

    uri: str
    database: str = ""
    token: str = field(default="", repr=False)
    seconds: float = 10.0
    load_seconds: float = 600.0
    words: bool = False

    @property
    def is_lite(self) -> bool:
        """Whether it is a Milvus Lite, in a folder."""
        return self.uri.endswith(LITE_ENDING)

    def __str__(self) -> str:
        return f"Milvus at {self.uri}"


def parse_milvus_url(
    url: str, *, seconds: float = 10.0, load_seconds: float = 600.0, words: bool = False
) -> MilvusAddress:
    """Parse the URL of a Milvus server or of the folder of a Milvus Lite.

    The other arguments are those of `MilvusAddress`.

    Raises:
        ValueError: it is neither.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the port is no number up to 65535; the forms are {_FORMS}") from error
    if parts.scheme not in ("milvus", _TLS) or parts.query or parts.fragment:
        raise ValueError(f"is none of the forms {_FORMS}")
    if not parts.hostname:
        if parts.scheme == _TLS or port or parts.username:
            raise ValueError(f"names no host; the forms are {_FORMS}")
        if not parts.path.endswith(LITE_ENDING) or parts.path.endswith(f"/{LITE_ENDING}"):
            raise ValueError(f"the folder of a Milvus Lite has a name that ends in {LITE_ENDING}")
        return MilvusAddress(
            unquote(parts.path), seconds=seconds, load_seconds=load_seconds, words=words
        )
    database = parts.path.strip("/")
    if "/" in database:
        raise ValueError(f"{database!r} is no name of a database; the forms are {_FORMS}")
    scheme = "https" if parts.scheme == _TLS else "http"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    credentials = [unquote(one) for one in (parts.username, parts.password) if one]
    return MilvusAddress(
        uri=f"{scheme}://{host}:{port or DEFAULT_PORT}",
        database=database,
        token=":".join(credentials),
        seconds=seconds,
        load_seconds=load_seconds,
        words=words,
    )


class MilvusConnection:
    """A client of one Milvus. Safe to use from many threads; close it at the end."""

    def __init__(self, address: MilvusAddress) -> None:
        """Connect, and check the version.

        Raises:
            VectorEngineError: pymilvus is not installed, the Milvus cannot be reached, or it is
                of a version that is not supported.
        """
        self.address = address
        self.problem: str | None = None  # with which the last request failed
        self.version = ""
        try:
            if address.is_lite:
                require_extra("milvus-lite", "Milvus Lite")
            else:
                require_extra("milvus", "Milvus")
        except MissingExtraError as error:
            raise VectorEngineError(str(error)) from error
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it logs each lost connection to stderr
        self._lite = _LITES.open(Path(address.uri)) if address.is_lite else None
        try:
            self._client = self._connect(self._lite or address.uri)
            self.version = str(self.call("get_server_version"))
            _check_version(address, self.version)
        except BaseException:
            self._release()
            raise

    @property
    def is_lite(self) -> bool:
        """Whether it is a Milvus Lite, in this process or in another one."""
        return self.version.startswith(LITE_VERSION)

    def _connect(self, uri: str) -> "MilvusClient":
        from pymilvus import MilvusClient

        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # its errors are raised, too
        address = self.address
        with translated_errors(address):
            return MilvusClient(
                uri=uri,
                token=address.token,
                db_name=address.database,
                timeout=address.seconds,
                dedicated=True,
                grpc_options=_WITHOUT_PINGS if address.is_lite else {},
            )

    def call(self, name: str, *arguments: Any, seconds: float | None = None, **named: Any) -> Any:
        """Call a method of the client, which may take `seconds`, by default those of the address.

        Raises:
            VectorEngineError: it failed, or took longer.
        """
        method: Callable[..., Any] = getattr(self._client, name)
        try:
            with translated_errors(self.address):
                answer = method(*arguments, timeout=seconds or self.address.seconds, **named)
        except VectorEngineError as error:
            if self.problem is None and self.version:
                _log.error("%s", error)
            self.problem = str(error)
            raise
        if self.problem is not None:
            _log.warning("%s works again", self.address)
        self.problem = None
        return answer

    def flush(self, collection: str, searches: ReadersWriterLock) -> None:
        """Let Milvus write a collection to its disk.

        Args:
            collection: its name.
            searches: held for reading by each search: one that runs beside a flush of Milvus Lite
                would miss what is on the way to the disk.

        Raises:
            VectorEngineError: it did not confirm it.
        """
        with ExitStack() as held:
            if self.is_lite:
                held.enter_context(searches.writing())
            self.call("flush", collection, seconds=self.address.load_seconds)

    def check(self) -> None:
        """Ask the Milvus whether it works.

        Raises:
            VectorEngineError: it does not.
        """
        self.call("get_server_version")

    def close(self) -> None:
        """Close the connection, and the Milvus Lite after the last one to it."""
        self._client.close()
        self._release()

    def _release(self) -> None:
        if self._lite is not None:
            self._lite = None
            _LITES.close(Path(self.address.uri))


@contextmanager
def translated_errors(address: MilvusAddress) -> Iterator[None]:
    """Raise what pymilvus and its transport raise as VectorEngineError, in one line."""
    import grpc
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        problem = f"{address}: {_one_line(error.message)}"
        raise VectorEngineError(problem, answered=_has_answered(error)) from error
    except grpc.RpcError as error:
        code = error.code() if isinstance(error, grpc.Call) else None
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            problem = "did not answer in time (vectors_seconds, vectors_load_seconds)"
        else:
            problem = _one_line(error.details() if isinstance(error, grpc.Call) else str(error))
        raise VectorEngineError(f"{address}: {problem}") from error
    except ValueError as error:  # of grpc: the connection was closed
        raise VectorEngineError(f"{address}: {_one_line(str(error))}") from error


def _has_answered(error: "MilvusException") -> bool:
    """Return whether the Milvus itself refused a request; otherwise it was not reached in time."""
    late = "timeout" in str(error.message).lower()
    return isinstance(error.code, int) and error.code != _UNREACHABLE and not late


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:300] or "failed without a reason"


def _check_version(address: MilvusAddress, version: str) -> None:
    if version.startswith(LITE_VERSION):
        return
    numbers = version.lstrip("v").split("-")[0].split(".")
    try:
        found = (int(numbers[0]), int(numbers[1]))
    except (IndexError, ValueError):
        raise VectorEngineError(f"{address}: {version!r} is no known version") from None
    needed, what = (OLDEST_WITH_WORDS, " for words") if address.words else (OLDEST_SERVER, "")
    if found < needed:
        oldest = ".".join(map(str, needed))
        problem = f"has version {version}; {oldest} or later is needed{what}"
        raise VectorEngineError(f"{address}: {problem}")


class _Lites:
    """The Milvus Lites that this process has open; each is closed after its last user."""

    def __init__(self) -> None:
        self._opened: dict[Path, tuple[Any, Any, str]] = {}
        self._users: dict[Path, int] = {}
        self._changing = threading.Lock()

    def open(self, folder: Path) -> str:
        """Return the URI of the Milvus Lite of a folder, which is made when it is missing.

        Raises:
            VectorEngineError: it cannot be opened.
        """
        folder = folder.absolute()
        with self._changing:
            if folder not in self._opened:
                self._opened[folder] = _start_lite(folder)
            self._users[folder] = self._users.get(folder, 0) + 1
            return self._opened[folder][2]

    def close(self, folder: Path) -> None:
        """End a use; what was written is on the disk after the last one."""
        folder = folder.absolute()
        with self._changing:
            self._users[folder] -= 1
            if self._users[folder]:
                return
            server, database, _ = self._opened.pop(folder)
            server.stop(grace=None).wait()
            database.close()


_LITES = _Lites()


def _start_lite(folder: Path) -> tuple[Any, Any, str]:
    from milvus_lite.adapter.grpc.server import start_server_in_thread
    from milvus_lite.exceptions import DataDirLockedError

    if folder.is_file():
        raise VectorEngineError(
            f"Milvus at {folder}: is a file, of a Milvus Lite before 3.0: name a new folder"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        server, database, port = start_server_in_thread(str(folder), "127.0.0.1")
    except DataDirLockedError as error:
        raise VectorEngineError(f"Milvus at {folder}: in use by another process") from error
    except Exception as error:  # whatever its files make it raise
        raise VectorEngineError(
            f"Milvus at {folder}: cannot be opened: {_one_line(error)}; if it is damaged, delete "
            "the folder: it holds copies only"
        ) from error
    return server, database, f"http://127.0.0.1:{port}"

"""Files are read in a child process with limits of memory and time.

A damaged or hostile file can make a parser crash, run for hours or take all memory. Then the child
ends, the file is refused, and the next file is read by a new child. One child reads many files,
since starting one takes longer than reading a usual file. It sets its own limits, and ends with the
other side of its connection. Requests and replies are JSON, never pickled: what reads a hostile
file is not to be trusted.
"""

import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from index.corpus.formats.content import FileText
from index.corpus.formats.files import read_file_text
from index.corpus.formats.ocr import OCR_SECONDS
from index.errors import CorpusError

_TICK_SECONDS = 0.25
OUT_OF_MEMORY = 3  # exit status
# glibc reserves addresses far beyond what it uses, for each thread.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}
# The child imports what this process imports, wherever it runs.
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from index.corpus.file_reader import main; main(*map(int, sys.argv[2:]))"
)


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """What reading one file may take.

    Attributes:
        memory_bytes: address space of the child, or on macOS, which does not limit that, memory
            in use, examined four times a second.
        cpu_seconds: processor time.
        wait_seconds: time without an answer, which also ends a child that waits for a dead disk.
        enforced: the kernel enforces `memory_bytes`; else this process examines it.
    """

    memory_bytes: int = 2 * 2**30
    cpu_seconds: int = 60
    wait_seconds: float = 300.0
    enforced: bool = sys.platform != "darwin"


class FileReader:
    """Reads files in a child process, which is started when it is needed and ends with the block.

    Safe to use from many threads; one file is read at a time.
    """

    def __init__(self, limits: ReadingLimits = ReadingLimits()) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._end()

    def read(self, path: Path) -> FileText:
        """Read one file of a kind in `readable_suffixes`.

        Raises:
            CorpusError: as `read_file_text`; or reading takes more than the limits, or crashes. The
                message does not name the file.
        """
        with self._lock:
            reused = self._child is not None
            try:
                reply = self._request(path)
            except _ChildEndedError:
                if not reused:
                    raise
                # It may have ended because of what the files before have left in it.
                reply = self._request(path)
        if "error" in reply:
            raise CorpusError(reply["error"])
        return FileText(**reply)

    def _request(self, path: Path) -> dict[str, Any]:
        try:
            if self._child is None:
                self._child = _Child(self._limits)
            return self._child.read(path.absolute())
        except BaseException:  # Ctrl-C, too: an answer that nobody read would be taken for the next
            self._end()
            raise

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _ChildEndedError(CorpusError):
    """The child ended, or was ended, without a reply; says why."""


class _Child:
    """A running child."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._connection, theirs = Pipe()
        memory = limits.memory_bytes if limits.enforced else 0
        numbers = map(str, (theirs.fileno(), memory, limits.cpu_seconds))
        # Ctrl-C reaches all processes of a terminal. The child ends with this process, which
        # decides when; until then it inherits that the signal is blocked.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own code with our own interpreter
                [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), *numbers],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # parsers in C print warnings
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | _ENVIRONMENT | {OCR_SECONDS: str(0.6 * limits.wait_seconds)},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            theirs.close()
        self.pid = self._process.pid

    def read(self, path: Path) -> dict[str, Any]:
        """Send the path of a file and wait for the reply.

        Raises:
            _ChildEndedError: the child ended, or was ended, without one; says why.
        """
        try:
            self._connection.send_bytes(os.fsencode(path))
        except BrokenPipeError:
            raise _ChildEndedError(self._why()) from None
        waited = 0.0
        began = time.monotonic()
        while not self._connection.poll(_TICK_SECONDS):
            # Added up, not a deadline: while this process is stopped, no time is spent.
            waited += min(time.monotonic() - began, _TICK_SECONDS)
            began = time.monotonic()
            if waited >= self._limits.wait_seconds:
                raise _ChildEndedError(
                    f"takes longer than {self._limits.wait_seconds:g} seconds to read"
                )
            if not self._limits.enforced and self._memory() > self._limits.memory_bytes:
                raise _ChildEndedError(self._too_large())
        try:
            data = self._connection.recv_bytes(self._limits.memory_bytes)
        except (EOFError, ConnectionError):
            raise _ChildEndedError(self._why()) from None
        except OSError:
            raise _ChildEndedError(self._crashed("an answer that is too long")) from None
        reply: dict[str, Any] = json.loads(data.decode("utf-8", "surrogatepass"))
        return reply

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _memory(self) -> int:
        """Return the memory that the process uses, in bytes; 0 if that is not known."""
        command = ["ps", "-o", "rss=", "-p", str(self.pid)]
        shown = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603
        return int(shown or 0) * 1024

    def _why(self) -> str:
        """Return why the process has ended, or is about to."""
        try:
            status = self._process.wait(_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            return self._crashed("closed its output")
        if status == OUT_OF_MEMORY:
            return self._too_large()
        if status == -signal.SIGXCPU:
            return f"takes more than {self._limits.cpu_seconds} seconds of processor time to read"
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return self._crashed(name)

    def _too_large(self) -> str:
        return f"takes more than {self._limits.memory_bytes // 2**20} MiB of memory to read"

    def _crashed(self, how: str) -> str:
        return f"makes its reader fail ({how}): it is damaged, or {self._too_large()}"


def main(descriptor: int, memory_bytes: int, cpu_seconds: int) -> None:
    """Answer requests until the other side of a connection is closed.

    Args:
        descriptor: of the connection.
        memory_bytes: limit of the address space; 0 for none.
        cpu_seconds: limit of processor time for each request.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    connection = Connection(descriptor)
    requests = queue.SimpleQueue[bytes]()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    while True:
        path = Path(os.fsdecode(requests.get()))
        try:
            _limit_time(cpu_seconds)
            text = json.dumps(_answer(path), ensure_ascii=False)
            connection.send_bytes(text.encode("utf-8", "surrogatepass"))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BrokenPipeError:  # the parent has gone
            os._exit(0)


def _answer(path: Path) -> dict[str, Any]:
    try:
        return asdict(read_file_text(path))
    except CorpusError as error:
        return {"error": str(error)}


def _receive(connection: Connection, requests: "queue.SimpleQueue[bytes]") -> None:
    # In a thread of its own, which notices the end of the parent in the middle of a file, too.
    with suppress(EOFError, ConnectionError):
        while True:
            requests.put(connection.recv_bytes())
    os._exit(0)


def _limit_time(seconds: int) -> None:
    """Let the kernel end this process when it has used so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))

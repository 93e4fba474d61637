"""What a method does, as steps that a client performs, blocking or awaiting.

Every method of both clients is one generator of this package: it yields steps, and is
sent their results. `Client` performs a step by blocking, `AsyncClient` by awaiting; nothing else
differs between them.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

T = TypeVar("T")

_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class FileBody:
    """The body of a request in a file, so that it can be sent again.

    Attributes:
        file: a path, or an open file, which is read from its beginning.
        size: in bytes.
        progress: called with the bytes that were sent and `size`; again from 0 when repeated.
    """

    file: Path | IO[bytes]
    size: int
    progress: Callable[[int, int], None] | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes, and report progress after each part."""
        if isinstance(self.file, Path):
            with self.file.open("rb") as opened:
                yield from self._chunks(opened)
        else:
            self.file.seek(0)
            yield from self._chunks(self.file)

    def _chunks(self, opened: IO[bytes]) -> Iterator[bytes]:
        sent = 0
        self._report(sent)
        while chunk := opened.read(_CHUNK):
            yield chunk
            sent += len(chunk)
            self._report(sent)

    def _report(self, sent: int) -> None:
        if self.progress is not None:
            self.progress(sent, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. Doing it twice must be the same as doing it once: it may be repeated.

    Attributes:
        method: of HTTP.
        path: percent-encoded.
        params: of the query; None values are left out.
        headers: in addition to those of the client.
        json: the body, if it is JSON; None for no body.
        file: the body, if it is in a file.
        streamed: the body of a successful answer is read by `Read` steps.
        done_status: of an answer which means, after an attempt without an answer, that this one was
            done: 404 when something is deleted.
        retried: is repeated when it fails.
    """

    method: str
    path: str
    params: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: object = None
    file: FileBody | None = None
    streamed: bool = False
    done_status: int | None = None
    retried: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Attributes:
        status: of HTTP.
        headers: by name in lower case.
        content: the body; empty if it is streamed.
        stream: what a client reads a streamed body from.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes = b""
    stream: Any = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and receive a `Reply`; raises the errors of httpx.

    Attributes:
        request: to send.
        seconds: that it may take; None for any time.
    """

    request: Request
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next bytes of a streamed reply; None at its end."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call a function that blocks, on the disk for example."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    """Give the next element to who iterates."""

    value: T


Step = Send | Read | Sleep | Work
Steps = Generator[Step, Any, T]
Emitting = Generator[Step | Emit[T], Any, None]

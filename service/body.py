"""The body of a request: its media type, its time and its memory, and how it is read."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import errors
from service.limits import RateLimitCharge, estimate_tokens
from service.text.logic import FILE_TYPES
from service.workers.queue import Reservation

JSON, NDJSON = "application/json", "application/x-ndjson"
_WEIGHT = re.compile(r"\bq\s*=\s*([01](\.[0-9]{0,3})?)(?![0-9.])")


def media_type(headers: Headers) -> str:
    """Return the media type of a body, in lower case and without parameters; "" if not given."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def choose_media_type(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered media type that the client prefers, or raise NotAcceptableError.

    Args:
        accept: the Accept header; None or "" accepts anything.
        offered: media types without parameters; of equals, the first is preferred.
    """
    ranges: dict[str, float] = {}
    for part in (accept or "*/*").lower().split(","):
        kind, _, parameters = part.partition(";")
        weight = _WEIGHT.search(parameters)
        ranges[kind.strip()] = float(weight[1]) if weight else 1.0

    def quality(kind: str) -> float:
        """Return the weight that the most specific range gives to a media type."""
        names = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        return next((ranges[name] for name in names if name in ranges), 0.0)

    best = max(offered, key=quality)
    if quality(best) == 0:
        raise errors.NotAcceptableError(offered)
    return best


class BodyKind(Enum):
    """How the body of a request is read."""

    NONE = auto()  # not at all
    JSON = auto()  # whole, into memory
    FILE = auto()  # the same, of the types in FILE_TYPES
    LINES = auto()  # by its route, as it arrives


_LENGTH_DIGITS = 19  # of a Content-Length; with more it is over any limit


def announced_length(headers: Headers, kind: BodyKind, limit: int) -> int:
    """Check the head of a request against what its route takes: a body of `limit` bytes at most.

    Returns:
        Its Content-Length in bytes; 0 if it has none, or no body is read.

    Raises:
        UnsupportedMediaTypeError: the route does not take its media type.
        BodyTooLargeError: it is too long.
    """
    if kind is BodyKind.NONE:
        return 0
    if kind is BodyKind.JSON and not _is_json(media_type(headers)):
        raise errors.UnsupportedMediaTypeError
    if kind is BodyKind.FILE and media_type(headers) not in FILE_TYPES:
        raise errors.UnsupportedMediaTypeError(f"send a file as {', '.join(FILE_TYPES)}")
    announced = headers.get("content-length", "")
    if not (announced.isascii() and announced.isdecimal()):
        return 0
    length = int(announced[: _LENGTH_DIGITS + 1])
    if length > limit:
        raise errors.BodyTooLargeError(limit=limit)
    return length


def _is_json(kind: str) -> bool:
    name, _, subtype = kind.partition("/")
    return name == "application" and (subtype == "json" or subtype.endswith("+json"))


# A body may take these seconds, and one more for each 64 KiB: slow mobile networks are faster, and
# a client that sends on purpose slowly holds its place for no longer.
UPLOAD_SECONDS = 10.0
_BYTES_PER_SECOND = 64 * 1024
_STALL_SECONDS = 1.0  # a body that pauses for longer does not delay other requests


@asynccontextmanager
async def limited_time(
    seconds: float | None, error: type[Exception]
) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block after this many seconds, where there are any, and raise this error."""
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            yield timer
    except TimeoutError:
        if not timer.expired():
            raise
        raise error from None


@dataclass(slots=True)
class TimedBody:
    """Receives the body of a request, counts and charges its bytes, and limits its time.

    Attributes:
        wrapped: the `receive` of the server.
        reservation: of the request; grows when the body is longer than announced.
        charge: of the request; what was not announced is charged at the end.
        hold: sets how many bytes of memory are held for the body. One that arrives slowly holds
            what has arrived, not what was announced: others need the room.
        announced: bytes of the body; 0 if not known.
        received: bytes that have arrived.
        waited: seconds that they took.
        complete: whether that is all.
    """

    wrapped: Receive
    reservation: Reservation
    charge: RateLimitCharge
    hold: Callable[[int], None]
    announced: int
    received: int = 0
    waited: float = 0.0
    complete: bool = False

    async def receive(self) -> Message:
        """Receive the next part of the body, or the message after it."""
        if self.complete:
            return await self.wrapped()
        started = time.monotonic()
        message = await self._next_part()
        self.waited += time.monotonic() - started
        self.received += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        tokens = estimate_tokens(self.received, self.reservation.queue.max_tokens)
        if tokens > self.reservation.tokens:
            self.reservation.resize(tokens)
        if self.complete:
            self.reservation.stalled = False
            await self.charge.spend(self.received)
        if self.complete or self.waited > _STALL_SECONDS or not self.announced:
            self.hold(self.received)
        return message

    async def _next_part(self) -> Message:
        left = UPLOAD_SECONDS + self.received / _BYTES_PER_SECOND - self.waited
        stalling = asyncio.get_running_loop().call_later(min(left, _STALL_SECONDS), self._stall)
        try:
            async with limited_time(left, errors.UploadTooSlowError):
                return await self.wrapped()  # at once where the part is there: mostly
        finally:
            stalling.cancel()

    def _stall(self) -> None:
        """Reserve room for what has arrived, not for what was announced: others need it."""
        self.reservation.stalled = True
        self.reservation.resize(estimate_tokens(self.received, self.reservation.queue.max_tokens))
        self.hold(self.received)


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return the body; ClientDisconnect if the client disconnected before it was complete."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise errors.BodyTooLargeError(limit=limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def answer_unless_disconnected(
    app: ASGIApp, body: bytes, scope: Scope, receive: Receive, send: Send
) -> None:
    """Let an application answer, with a body that was read from `receive`.

    Raises:
        ClientDisconnect: the client disconnected before it had answered, and it was cancelled.
    """
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    answered = False

    async def receive_read() -> Message:
        if messages:
            return messages.pop()
        return await asyncio.Future()  # until it is cancelled on disconnection

    async def send_noted(message: Message) -> None:
        nonlocal answered
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            answered = True

    async def cancel_on_disconnection() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not answered:  # the server also reports a disconnection after the last byte
            timer.reschedule(asyncio.get_running_loop().time())

    async with limited_time(None, ClientDisconnect) as timer:
        watching = asyncio.create_task(cancel_on_disconnection())
        try:
            await app(scope, receive_read, send_noted)
        finally:
            watching.cancel()

"""Admission: what is decided about a request by its headers, before its body is read or parsed.

It has to be fast when the service is not: a request for which there is no room is rejected by its
Content-Length. An admitted request has a place and a reservation in the queue from its first byte
until its response starts, so that bodies still on their way count, too. It also costs its client
tokens of the rate limit, which are spent as its body grows.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.access import client_of, needed_scope
from service.api.http.request import BodyKind, first_segment, request_body, split_path
from service.engine import Engine
from service.errors import (
    DeadlinePassedError,
    FieldError,
    InvalidInputError,
    RateLimitedError,
    UploadTooSlowError,
)
from service.limits import WINDOW_SECONDS, RateLimiter, RateLimitStatus, check_disk
from service.workers.queue import Reservation
from service.workers.scheduler import use_reservation

BYTES_PER_TOKEN = 4  # of English in JSON; the actual tokens are counted when the body is read
_SLICE_TOKENS = 4096  # a growing body is charged in slices: each may be a call of Redis


def tokens_of(size: int) -> int:
    """Return the estimated tokens of a body of so many bytes."""
    return size // BYTES_PER_TOKEN + 1


class Charge:
    """The tokens that one request has spent.

    A request costs the estimated tokens of its body, however the body is sent: announced, in
    chunks, or compressed, where the decompressed bytes count.
    """

    def __init__(self, limiter: RateLimiter | None, client: str) -> None:
        """Spend nothing yet; nothing is charged without a limiter."""
        self._limiter = limiter
        self._client = client
        self._spent = 0
        self._status: RateLimitStatus | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that tell a client how many tokens it has left, and for how long, if any."""
        if self._status is None:
            return {}
        status = self._status
        return {
            "RateLimit-Policy": f'"tokens";q={status.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"tokens";r={status.remaining};t={status.reset_seconds}',
        }

    async def cover(self, size: int, *, complete: bool = False) -> None:
        """Spend what a body costs and what has not been spent, or raise RateLimitedError.

        Args:
            size: of the body so far, in bytes.
            complete: there is no more of it: spend the last tokens, however few.
        """
        tokens = tokens_of(size)
        more = tokens - self._spent
        if self._limiter is None or more <= 0 or not (complete or more >= _SLICE_TOKENS):
            return
        spend, spent = self._limiter.spend, self._spent
        status = await asyncio.to_thread(spend, self._client, more, spent)
        self._status = status
        if not status.admitted:
            raise RateLimitedError(status.limit, status.retry_after, self.headers)
        self._spent = tokens


# A body may take these seconds, and one more for each 64 KiB: slow mobile networks are faster, and
# a client that sends on purpose slowly holds its place for no longer.
UPLOAD_SECONDS = 10.0
_BYTES_PER_SECOND = 64 * 1024
_STALL_SECONDS = 1.0  # a body that pauses for longer does not delay other requests
_LINES_BYTES = 2**20  # of an upload at a time, which goes to the disk
TIMEOUT_HEADER = "X-Request-Timeout-Ms"
MAX_TIMEOUT_MS = 24 * 3600 * 1000
_TIMEOUT = re.compile(r"[1-9][0-9]{0,8}")

# First segments of the paths that are served under any load: probes, metrics, progress of uploads,
# documentation, the files of the page, and the collections themselves.
OPEN_PATHS = frozenset(
    {"", "livez", "readyz", "metrics", "version", "jobs", "problems", "docs", "openapi.json"}
    | {"static", "collections"}
)
_OPEN_BELOW_V1 = "/v1/models"


def estimate_tokens(length: int, max_queue_tokens: int) -> int:
    """Return the estimated number of tokens of a body.

    Args:
        length: of the body, in bytes.
        max_queue_tokens: tokens that the queue holds; the estimate is at most half of them, so that
            a large body finds room among small ones.
    """
    return min(tokens_of(length), max_queue_tokens // 2)


class TimedBody:
    """Receives the body of a request, counts and charges its bytes, and limits its time."""

    def __init__(
        self,
        receive: Receive,
        reservation: Reservation,
        charge: Charge,
        hold: Callable[[int], None],
        announced: int,
        seconds: float,
        max_queue_tokens: int,
    ) -> None:
        """Wrap the `receive` of the server.

        Args:
            receive: of the server.
            reservation: of the request; grows when the body is longer than announced.
            charge: of the request; grows with the body.
            hold: sets how many bytes of memory are held for the body. One that arrives slowly
                holds what has arrived, not what was announced: others need the room.
            announced: bytes of the body; 0 if not known.
            seconds: that the body may take, in addition to one second for each 64 KiB.
            max_queue_tokens: tokens that the queue holds.
        """
        self._receive = receive
        self._reservation = reservation
        self._charge = charge
        self._hold = hold
        self._announced = announced
        self._seconds = seconds
        self._max_queue_tokens = max_queue_tokens
        self._waited = 0.0
        self._complete = False
        self.received = 0

    async def receive(self) -> Message:
        """Receive the next part of the body, or the message after it."""
        if self._complete:
            return await self._receive()
        started = time.monotonic()
        message = await self._next_part()
        self._waited += time.monotonic() - started
        self.received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        tokens = estimate_tokens(self.received, self._max_queue_tokens)
        if tokens > self._reservation.tokens:
            self._reservation.resize(tokens)
        if self._complete:
            self._reservation.stall(False)
        if self._complete or self._waited > _STALL_SECONDS or not self._announced:
            self._hold(self.received)
        await self._charge.cover(self.received, complete=self._complete)
        return message

    async def _next_part(self) -> Message:
        left = self._seconds + self.received / _BYTES_PER_SECOND - self._waited
        stalling = asyncio.get_running_loop().call_later(min(left, _STALL_SECONDS), self._stall)
        timer = asyncio.timeout(left)
        try:
            async with timer:
                return await self._receive()  # at once where the part is there: mostly
        except TimeoutError:
            if not timer.expired():
                raise
            raise UploadTooSlowError from None
        finally:
            stalling.cancel()

    def _stall(self) -> None:
        """Reserve room for what has arrived, not for what was announced: others need it."""
        self._reservation.stall(True)
        self._reservation.resize(estimate_tokens(self.received, self._max_queue_tokens))
        self._hold(self.received)


class AdmissionMiddleware:
    """Admits requests by their cost in tokens, and cancels those whose deadline passes."""

    def __init__(self, app: ASGIApp, upload_seconds: float = UPLOAD_SECONDS) -> None:
        self._app = app
        self._upload_seconds = upload_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        engine: Engine | None = scope["app"].state.engine
        if scope["type"] != "http" or engine is None or is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        seconds = _timeout_seconds(headers)
        settings = engine.settings
        max_tokens = settings.max_queue_tokens
        expected = request_body(scope)
        # NDJSON is indexed in the background, and files are not encoded.
        encodes = expected.kind is BodyKind.JSON
        tokens = estimate_tokens(expected.length, max_tokens) if encodes else 0
        needed = needed_scope(scope["method"], scope["path"], settings)
        if encodes and needed == "write":
            check_disk(settings.data, expected.length, settings.disk_reserve_bytes)
        client, lines = client_of(scope), expected.kind is BodyKind.LINES
        in_memory = _LINES_BYTES if lines else expected.length
        # Until the response has ended, and not only until it starts as the place: the body stays.
        with engine.bodies.hold(client, in_memory) as hold, ExitStack() as place:
            reservation = place.enter_context(
                engine.scheduler.reserve(
                    tokens, deadline=time.monotonic() + seconds, background=not encodes
                )
            )
            place.enter_context(engine.admission.admit())
            charge = scope["state"]["charge"] = Charge(engine.rate_limiter, client)
            await charge.cover(expected.length, complete=True)
            if expected.kind is not BodyKind.NONE:
                receive = TimedBody(
                    receive,
                    reservation,
                    charge,
                    (lambda _: None) if lines else hold,
                    expected.length,
                    self._upload_seconds,
                    max_tokens,
                ).receive
            async with _deadline(seconds) as timer:
                with use_reservation(reservation):
                    await self._app(scope, receive, _responding(send, timer, charge, place))


def is_open(path: str) -> bool:
    """Return whether a path is served under any load."""
    _, path = split_path(path)
    if not path.startswith("/"):
        return True
    return first_segment(path) in OPEN_PATHS or path.startswith(_OPEN_BELOW_V1)


def _timeout_seconds(headers: Headers) -> float:
    """Return how long the client waits; infinity if it does not say."""
    given = headers.get(TIMEOUT_HEADER)
    if given is None:
        return math.inf
    if not (_TIMEOUT.fullmatch(given) and int(given) <= MAX_TIMEOUT_MS):
        detail = f"must be milliseconds, from 1 to {MAX_TIMEOUT_MS}"
        raise InvalidInputError([FieldError("", detail, MAX_TIMEOUT_MS, parameter=TIMEOUT_HEADER)])
    return int(given) / 1000


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block after this many seconds, and raise DeadlinePassedError."""
    timer = asyncio.timeout(None if math.isinf(seconds) else seconds)
    try:
        async with timer:
            yield timer
    except TimeoutError:
        if not timer.expired():
            raise
        raise DeadlinePassedError from None


def _responding(send: Send, timer: asyncio.Timeout, charge: Charge, place: ExitStack) -> Send:
    """Let a response that has started finish after the deadline, and add the rate limit headers.

    The request gives back its place and its reservation: the work is done, and the client, for
    whom the rest waits, may be slow.
    """

    async def send_response(message: Message) -> None:
        if message["type"] == "http.response.start":
            timer.reschedule(None)
            place.close()
            MutableHeaders(scope=message).update(charge.headers)
        await send(message)

    return send_response

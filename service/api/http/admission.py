"""The door: what is decided about a request by its head, before its body is read or parsed.

It has to be fast when the service is not: a request that there is no room for is refused by the
bytes that it announces. What is admitted has its place in the queue from its first byte on, so that
bodies on their way count, too, and has it until the answer is sent.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.negotiation import NDJSON
from service.engine import Engine
from service.errors import (
    DeadlinePassedError,
    FieldError,
    InvalidInputError,
    RateLimitedError,
    UploadTooSlowError,
)
from service.limits.rate_limit import WINDOW_SECONDS, RateLimitStatus, client_name
from service.workers.reservation import use_reservation
from service.workers.work import Reservation


def rate_limit_headers(verdict: RateLimitStatus) -> dict[str, str]:
    """Return the headers that say what a client may ask for, in tokens, and until when."""
    return {
        "RateLimit-Policy": f'"tokens";q={verdict.limit};w={WINDOW_SECONDS}',
        "RateLimit": f'"tokens";r={verdict.remaining};t={verdict.reset_seconds}',
    }


_BYTES_PER_TOKEN = 4  # of English in JSON; what a text really has is counted when it is read
_BYTES_PER_SECOND = 64 * 1024  # an upload that is as fast is never too slow
_STALL_SECONDS = 1.0  # others do not wait for a body that has not come by then


def tokens_of(length: int, most: int) -> int:
    """Return the tokens that a body is taken to have.

    Args:
        length: of the body, in bytes.
        most: tokens that the queue holds; one body is never taken for more than half of them, so
            that it finds room beside small ones.
    """
    return min(length // _BYTES_PER_TOKEN + 1, most // 2)


class Upload:
    """The `receive` of an application whose body is counted and timed."""

    def __init__(self, receive: Receive, place: Reservation, seconds: float, most: int) -> None:
        """Watch over a body.

        Args:
            receive: of the server.
            place: of the request; grows when the body is longer than was announced.
            seconds: that the body may take, beside a second for each 64 KiB.
            most: tokens that the queue holds.
        """
        self._receive = receive
        self._place = place
        self._seconds = seconds
        self._most = most
        self._waited = 0.0
        self._complete = False
        self.received = 0

    async def receive(self) -> Message:
        """Receive the next part of the body, or what comes after it.

        Raises:
            UploadTooSlowError: it did not come in time.
            OverloadedError: the body has become longer than there is room for.
        """
        if self._complete:
            return await self._receive()
        started = time.monotonic()
        message = await self._next_part()
        self._waited += time.monotonic() - started
        self.received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        tokens = tokens_of(self.received, self._most)
        if tokens > self._place.tokens:
            self._place.resize(tokens)
        if self._complete:
            self._place.stall(False)
        return message

    async def _next_part(self) -> Message:
        left = self._seconds + self.received / _BYTES_PER_SECOND - self._waited
        part = asyncio.ensure_future(self._receive())
        try:
            for seconds in (min(left, _STALL_SECONDS), left - _STALL_SECONDS):
                await asyncio.wait({part}, timeout=max(0.0, seconds))
                if part.done():
                    return part.result()
                self._stall()
            raise UploadTooSlowError
        finally:
            part.cancel()

    def _stall(self) -> None:
        """Keep room for what has come, not for what was announced: others want it."""
        self._place.stall(True)
        self._place.resize(tokens_of(self.received, self._most))


TIMEOUT_HEADER = "X-Request-Timeout-Ms"
KEY_HEADER = "X-API-Key"
MAX_TIMEOUT_MS = 24 * 3600 * 1000

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# First segments of the paths that are open whatever the load is: probes, scrapes, how far uploads
# are, documentation.
OPEN_PATHS = frozenset(
    {"", "livez", "readyz", "metrics", "version", "jobs", "problems", "docs", "openapi.json"}
)


class AdmissionMiddleware:
    """Admits requests by their cost in tokens, and gives up those whose deadline passes."""

    def __init__(self, app: ASGIApp, upload_seconds: float) -> None:
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
        tokens = _announced_tokens(scope["method"], headers, engine.settings.max_queue_tokens)
        place = engine.scheduler.reserve(
            tokens or 0, deadline=time.monotonic() + seconds, background=tokens is None
        )
        with place, engine.admission.admit():
            verdict = await _charge(engine, scope, headers, max(1, place.tokens))
            most = engine.settings.max_queue_tokens
            upload = Upload(receive, place, self._upload_seconds, most)
            async with _deadline(seconds) as timer:
                with use_reservation(place):
                    answer = _answering(send, timer, verdict)
                    await self._app(scope, upload.receive, answer)


def is_open(path: str) -> bool:
    """Say whether a path is served whatever the load is."""
    return path.split("/", 2)[1] in OPEN_PATHS if path.startswith("/") else True


def _timeout_seconds(headers: Headers) -> float:
    """Return how long the client waits.

    Raises:
        InvalidInputError: the header makes no sense.
    """
    given = headers.get(TIMEOUT_HEADER)
    if given is None:
        return math.inf
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:12]) <= MAX_TIMEOUT_MS):
        detail = f"must be milliseconds, from 1 to {MAX_TIMEOUT_MS}"
        raise InvalidInputError([FieldError("", detail, MAX_TIMEOUT_MS, parameter=TIMEOUT_HEADER)])
    return int(given) / 1000


def _announced_tokens(method: str, headers: Headers, most: int) -> int | None:
    """Return the tokens that a body is worth by its bytes; None where nothing is encoded for it.

    Lines of NDJSON are worked on in the background, one after the other. One request is never
    taken for more than half of the queue, so that it finds room beside small ones; what its texts
    really have is known, and has to fit, when they are read.
    """
    if method not in _WITH_BODY or headers.get("content-type", "").startswith(NDJSON):
        return None
    announced = headers.get("content-length", "")
    length = int(announced) if announced.isascii() and announced.isdecimal() else 0
    return tokens_of(length, most)


async def _charge(
    engine: Engine, scope: Scope, headers: Headers, tokens: int
) -> RateLimitStatus | None:
    """Spend tokens of the client; None where nobody counts.

    Raises:
        RateLimitedError: it has too few.
    """
    if engine.rate_limiter is None:
        return None
    client = client_name(headers.get(KEY_HEADER, ""), (scope.get("client") or ("", 0))[0])
    verdict = await asyncio.to_thread(engine.rate_limiter.spend, client, tokens)
    if not verdict.admitted:
        raise RateLimitedError(verdict.limit, verdict.retry_after, rate_limit_headers(verdict))
    return verdict


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Give up what is done in the block after so many seconds.

    Raises:
        DeadlinePassedError: they are over.
    """
    timer = asyncio.timeout(None if math.isinf(seconds) else seconds)
    try:
        async with timer:
            yield timer
    except TimeoutError:
        if not timer.expired():
            raise
        raise DeadlinePassedError from None


def _answering(send: Send, timer: asyncio.Timeout, verdict: RateLimitStatus | None) -> Send:
    """Let an answer that has begun be finished, and say in it what the client may still ask for."""

    async def send_answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            timer.reschedule(None)
            if verdict is not None:
                MutableHeaders(scope=message).update(rate_limit_headers(verdict))
        await send(message)

    return send_answer

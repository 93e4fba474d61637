"""ASGI middleware around every request: its id, metrics, reading its body, disconnection."""

import asyncio
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.errors import problem_response
from service.api.http.request import BodyKind, request_body, route_template
from service.engine import Engine
from service.errors import BodyTooLargeError, ShuttingDownError
from service.telemetry import name_in_logs

CLIENT_CLOSED_REQUEST = 499
UNMATCHED_ROUTE = "unmatched"
_REFUSED_BY_ROUTE = frozenset({405, 413, 415})  # for what is wrong with the request itself
# What asks every few seconds would hide the rest of the log.
_UNLOGGED = frozenset({"/livez", "/readyz", "/metrics"})
_LOG = logging.getLogger("service.requests")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")


class RequestMiddleware:
    """Gives each request an id, counts it, and answers unexpected errors with a problem.

    HEAD is served as GET, of which only the head is sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = request_id
        name_in_logs(request_id=request_id)
        started = time.perf_counter()
        code: int | None = None
        head_only, ended = scope["method"] == "HEAD", False
        served = {**scope, "method": "GET"} if head_only else scope

        async def send_named(message: Message) -> None:
            nonlocal code, ended
            if message["type"] == "http.response.start":
                code = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            elif head_only:
                if ended:
                    return
                ended, message = True, {"type": message["type"], "body": b""}
            await send(message)

        try:
            await self._app(served, receive, send_named)
        except Exception as error:
            if code is not None:
                raise
            await problem_response(served, error)(served, receive, send_named)
        except asyncio.CancelledError:
            # The server stops, and has waited long enough. It would log what is raised here as an
            # error of the service, with its traceback.
            if code is None:
                stopped = ShuttingDownError()
                await problem_response(served, stopped)(served, receive, send_named)
        finally:
            seconds = time.perf_counter() - started
            _count(served, scope["method"], code or CLIENT_CLOSED_REQUEST, seconds)


class BodyMiddleware:
    """Reads the body, and cancels the work when the client disconnects.

    NDJSON is passed on as it arrives: its route writes it to the disk. A body that the route does
    not take is dropped as it arrives, and nothing waits for it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        allowed = request_body(scope)
        if allowed.kind is BodyKind.LINES:
            try:
                await self._app(scope, receive, send)
            except ClientDisconnect:
                _count_cancelled(scope)
            return
        body: bytes | None = b""
        if allowed.kind in (BodyKind.JSON, BodyKind.FILE):
            body = await _read_body(receive, allowed.limit)
        if body is None:
            return
        exchange = _Exchange(body, send)
        work = asyncio.ensure_future(self._app(scope, exchange.receive, exchange.send))
        disconnection = asyncio.create_task(_until_disconnected(receive))
        try:
            await asyncio.wait({work, disconnection}, return_when=asyncio.FIRST_COMPLETED)
            if exchange.answered:
                # The server also reports a disconnection after the last byte.
                await asyncio.wait({work})
            elif not work.done():
                _count_cancelled(scope)
        finally:
            work.cancel()
            disconnection.cancel()
            await asyncio.gather(work, disconnection, return_exceptions=True)
        if not work.cancelled():
            work.result()


class _Exchange:
    """The `receive` and `send` of the application once the body has been read."""

    def __init__(self, body: bytes, send: Send) -> None:
        self.answered = False
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._send = send

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop()
        return await asyncio.Future()  # until the middleware cancels it on disconnection

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.answered = True


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the body, or None if the client disconnected before it was complete."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLargeError(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def listens(scope: Scope) -> None:
    """Note that the response to a request has no end: its client leaves, and that says nothing."""
    scope["state"]["listens"] = True


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _engine(scope: Scope) -> Engine | None:
    engine: Engine | None = scope["app"].state.engine
    return engine


def _count_cancelled(scope: Scope) -> None:
    engine = _engine(scope)
    if engine is not None and not scope["state"].get("listens"):
        engine.metrics.cancelled.inc()


def _count(scope: Scope, method: str, code: int, seconds: float) -> None:
    engine = _engine(scope)
    if engine is None:
        return
    # The template, never the path: paths come from clients and their number is unbounded.
    route = route_template(scope) or UNMATCHED_ROUTE
    method = method if method in _METHODS else "other"
    engine.metrics.requests.labels(route, method, str(code)).inc()
    if route not in _UNLOGGED:
        _LOG.info(
            "%s %s %d, %.1f ms",
            *(method, route, code, 1000 * seconds),
            extra={
                "route": route,
                "method": method,
                "code": code,
                "milliseconds": round(1000 * seconds, 3),
            },
        )
    if scope["state"].get("listens"):
        return
    # Apart from those that were served: where there is too much to do, rejections come by the
    # thousand, take no time, and would hide slow answers.
    if code not in _REFUSED_BY_ROUTE:
        route = getattr(scope.get("route"), "path", UNMATCHED_ROUTE)
    engine.metrics.request_duration.labels(route).observe(seconds)

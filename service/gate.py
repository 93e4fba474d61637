"""The gate: everything that is decided about a request before its route is called.

It finds the route once, and reads what the route declares of itself: see `Rules`. The order of the
checks is that of the lines of `Gate._admit`. What is refused there is refused by the head of the
request, before a byte of its body is read: a body that is not taken is never waited for. A request
that is admitted has a place, a reservation in the queue and memory for its body from its first byte
on, and gives them back however it ends. Its body has a limited time.
"""

import asyncio
import logging
import math
import re
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar, Literal, TypeVar

from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from index.directory.data_directory import KEY_FILE
from service import errors, keys, telemetry
from service.access import AUDIT_FILE, AllowedHosts, AuditLog, bound_to, client_of
from service.body import (
    NDJSON,
    BodyKind,
    TimedBody,
    announced_length,
    answer_unless_disconnected,
    limited_time,
    media_type,
    read_body,
)
from service.engine import DEFAULT, Engine
from service.errors import FieldError, InvalidInputError
from service.limits import RateLimitCharge, check_disk, estimate_tokens
from service.problem_responses import problem_response
from service.settings import Settings
from service.workers.scheduler import use_reservation

COLLECTION_PREFIX = "/collections/{collection}"
TIMEOUT_HEADER = "X-Request-Timeout-Ms"
MAX_TIMEOUT_MS = 24 * 3600 * 1000
CLIENT_CLOSED_REQUEST = 499
UNMATCHED_ROUTE = "unmatched"

_LINES_BYTES = 2**20  # of an upload in memory at a time; the rest is on the disk
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REFUSED_BY_ROUTE = frozenset({405, 413, 415})  # for what is wrong with the request itself
_REQUEST_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_TIMEOUT = re.compile(r"[1-9][0-9]{0,8}")
_LOG = logging.getLogger("service.requests")

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a route declares of its requests.

    Attributes:
        scope: that the API key must have, where there are keys; by default `read` for GET, and
            `write` for every other method.
        keyless: no key is needed: `always`, or where the setting `open_information` says so.
        of_all: says something of every collection: not for a key that is bound to one of them.
        collection: belongs to a collection, and is also served below `COLLECTION_PREFIX`.
        cost: what is reserved: nothing, so that it is served under any load; a place; or a place
            and tokens of the queue, by the length of the body. By default tokens for JSON.
        body: how it is read; by default as JSON where the route has a parameter for it.
        logged: in the log of requests. What asks every few seconds would hide the rest.
    """

    scope: keys.Scope | None = None
    keyless: Literal["always", "information"] | None = None
    of_all: bool = False
    collection: bool = True
    cost: Literal["nothing", "place", "tokens"] | None = None
    body: BodyKind | None = None
    logged: bool = True

    def scope_for(self, method: str) -> keys.Scope:
        """Return the scope that a request takes."""
        return self.scope or ("read" if method in _READING else "write")


def declare(**rules: Any) -> Callable[[Endpoint], Endpoint]:
    """Declare `Rules` of the route of a function that differ from those of its router."""

    def declared(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["rules"] = rules
        return endpoint

    return declared


class RuledRoute(APIRoute):
    """A route with its rules.

    Attributes:
        rules: that it declares.
        template: its path in a collection, by which it is counted and logged.
    """

    rules: Rules
    template: str

    @property
    def body_kind(self) -> BodyKind:
        """How the body of a request is read."""
        if self.rules.body is not None:
            return self.rules.body
        return BodyKind.NONE if self.body_field is None else BodyKind.JSON


class LinesRoute(RuledRoute):
    """A route for NDJSON only, which reads the body itself."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match requests with NDJSON; leave every other one to the next route of the path."""
        is_lines = media_type(Headers(scope=scope)) == NDJSON
        return super().matches(scope) if is_lines else (Match.NONE, {})


class FilesMount(Mount):
    """Files that are served to everybody who may see the documentation."""

    rules: ClassVar[Rules] = Rules(keyless="information", collection=False, cost="nothing")
    body_kind: ClassVar[BodyKind] = BodyKind.NONE

    @property
    def template(self) -> str:
        """Its path."""
        return self.path


@dataclass(frozen=True, slots=True)
class Found:
    """The route of a request.

    Attributes:
        route: None for a path that does not exist.
        matched: what the route adds to the scope.
        refused: why it is not called.
    """

    route: RuledRoute | FilesMount | None = None
    matched: Scope = field(default_factory=dict)
    refused: HTTPStatus | None = None

    @property
    def rules(self) -> Rules:
        """The rules of the route; where there is none, those that are the strictest."""
        return Rules(collection=False) if self.route is None else self.route.rules

    @property
    def body_kind(self) -> BodyKind:
        """How the body is read."""
        return BodyKind.NONE if self.route is None else self.route.body_kind


def find_route(scope: Scope) -> Found:
    """Return the route of a request, or the first one of its path that has another method."""
    partial: Found | None = None
    for route in scope["app"].router.routes:
        match, matched = route.matches(scope)
        if match is Match.FULL:
            return Found(route, matched)
        if match is Match.PARTIAL and partial is None:
            partial = Found(route, matched, HTTPStatus.METHOD_NOT_ALLOWED)
    return partial or Found(refused=HTTPStatus.NOT_FOUND)


class FoundRoute:
    """Calls the route that the gate found, instead of looking for it a second time."""

    def __init__(self, router: ASGIApp) -> None:
        self._router = router  # for what is not a request: the start and the end of the service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        found: Found = scope["state"]["found"]
        telemetry.name_span(scope["method"], scope["state"]["template"])
        scope.update(found.matched)
        if found.route is not None:  # the gate refuses what has none
            await found.route.handle(scope, receive, send)


class Gate:
    """Admits requests, or refuses them; counts and logs both."""

    def __init__(
        self, app: ASGIApp, settings: Settings, hosts: AllowedHosts, *, takes_keys: bool = True
    ) -> None:
        """Stand before an application whose router is a `FoundRoute`."""
        self._app = app
        self._settings = settings
        self._hosts = hosts
        self._ring = keys.KeyRing(settings.data / KEY_FILE)
        self._takes_keys = takes_keys
        self._audit = AuditLog(settings.data / AUDIT_FILE)
        self._limits = {
            BodyKind.NONE: 0,
            BodyKind.JSON: settings.max_body_bytes,
            BodyKind.FILE: settings.max_body_bytes,
            BodyKind.LINES: settings.max_upload_bytes,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection: name it, admit it, answer its errors, count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        telemetry.name_in_logs(request_id=request_id)
        started = time.perf_counter()
        code: int | None = None
        # HEAD is served as GET, of which only the head is sent.
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
            await self._admit(served, receive, send_named)
        except Exception as error:
            if code is not None:
                raise
            await problem_response(served, error)(served, receive, send_named)
        except asyncio.CancelledError:
            # The server stops, and has waited long enough. It would log what is raised here as an
            # error of the service, with its traceback.
            if code is None:
                stopped = errors.ShuttingDownError()
                await problem_response(served, stopped)(served, receive, send_named)
        finally:
            seconds = time.perf_counter() - started
            _count(served, scope["method"], code or CLIENT_CLOSED_REQUEST, seconds)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and serve it; the order of the checks is that of these lines."""
        headers, state = Headers(scope=scope), scope["state"]
        engine: Engine = scope["app"].state.engine
        if headers.get("host", "") not in self._hosts:
            raise errors.HostNotAllowedError
        found = state["found"] = find_route(scope)
        state["template"] = None if found.route is None else found.route.template
        rules, kind = found.rules, found.body_kind
        needed = rules.scope_for(scope["method"])
        if self._takes_key(rules):
            key = state["key"] = self._authenticate(headers, rules, needed)
            telemetry.hides_stages.set(key.collection is not None)
            telemetry.name_in_logs(key=key.id)
        if needed != "read" and scope["method"] not in _READING:
            send = self._audit.following(scope, send)
        with ExitStack() as used:
            name = state["collection"] = _collection_name(scope, found)
            if rules.collection:
                state["used"] = used.enter_context(engine.collections.use(name))
                telemetry.name_in_logs(collection=name)
            if found.refused is not None:
                raise HTTPException(found.refused)
            state["announced"] = announced_length(headers, kind, self._limits[kind])
            if rules.cost == "nothing":
                await self._serve(kind, scope, receive, send)
                return
            await self._reserve_and_serve(used, scope, receive, send)

    async def _reserve_and_serve(
        self, used: ExitStack, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Reserve memory, tokens and a place, in this order, and serve the request with them."""
        engine: Engine = scope["app"].state.engine
        found: Found = scope["state"]["found"]
        kind, length, settings = found.body_kind, scope["state"]["announced"], engine.settings
        encodes = found.rules.cost == "tokens" or (
            found.rules.cost is None and kind is BodyKind.JSON
        )
        seconds = _timeout_seconds(Headers(scope=scope))
        if kind is BodyKind.JSON and found.rules.scope_for(scope["method"]) == "write":
            check_disk(settings.data, length, settings.disk_reserve_bytes)
        client, lines = client_of(scope), kind is BodyKind.LINES
        hold = used.enter_context(engine.bodies.admit(client, _LINES_BYTES if lines else length))
        place = used.enter_context(ExitStack())  # until the response starts; the body stays
        reservation = place.enter_context(
            engine.scheduler.reserve(
                estimate_tokens(length, settings.max_queue_tokens) if encodes else 0,
                deadline=math.inf if seconds is None else time.monotonic() + seconds,
                background=not encodes,
                client=client,
            )
        )
        place.enter_context(engine.admission.admit(client))
        charge = scope["state"]["charge"] = RateLimitCharge(engine.rate_limiter, client)
        await charge.spend(length)
        if kind is not BodyKind.NONE:
            held = (lambda _: None) if lines else hold
            receive = TimedBody(receive, reservation, charge, held, length).receive
        async with limited_time(seconds, errors.DeadlinePassedError) as timer:
            with use_reservation(reservation):
                responding = _responding(send, timer, charge, place)
                await self._serve(kind, scope, receive, responding)

    def _takes_key(self, rules: Rules) -> bool:
        if not (self._takes_keys and self._ring.required) or rules.keyless == "always":
            return False
        return rules.keyless is None or not self._settings.open_information

    def _authenticate(self, headers: Headers, rules: Rules, needed: keys.Scope) -> keys.ApiKey:
        kind, _, token = headers.get("authorization", "").partition(" ")
        key = self._ring.find(token.strip()) if kind.lower() == "bearer" else None
        if key is None:
            raise errors.KeyRequiredError
        if not key.allows(needed):
            raise errors.ScopeMissingError(needed)
        if key.collection is not None and rules.of_all:
            raise errors.KeyBoundError
        return key

    async def _serve(self, kind: BodyKind, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body and call the route, or let the route read it."""
        try:
            if kind is BodyKind.LINES:
                await self._app(scope, receive, send)
                return
            body = b"" if kind is BodyKind.NONE else await read_body(receive, self._limits[kind])
            await answer_unless_disconnected(self._app, body, scope, receive, send)
        except ClientDisconnect:
            scope["app"].state.engine.metrics.cancelled.inc()


def _collection_name(scope: Scope, found: Found) -> str:
    """Return the collection of a request: that of its path, of its key, or the default one."""
    bound, named = bound_to(scope), None
    if found.rules.collection:
        named = found.matched.get("path_params", {}).get("collection")
    if named is not None and bound not in (None, named):
        raise errors.CollectionNotFoundError(named)
    below = "" if named is None else COLLECTION_PREFIX.format(collection=named)
    scope["state"]["prefix"] = scope.get("root_path", "") + below
    return named or bound or DEFAULT


def _timeout_seconds(headers: Headers) -> float | None:
    """Return how long the client waits; None if it does not say."""
    given = headers.get(TIMEOUT_HEADER)
    if given is None:
        return None
    if not (_TIMEOUT.fullmatch(given) and int(given) <= MAX_TIMEOUT_MS):
        detail = f"must be milliseconds, from 1 to {MAX_TIMEOUT_MS}"
        raise InvalidInputError([FieldError("", detail, MAX_TIMEOUT_MS, parameter=TIMEOUT_HEADER)])
    return int(given) / 1000


def _responding(
    send: Send, timer: asyncio.Timeout, charge: RateLimitCharge, place: ExitStack
) -> Send:
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


def _count(scope: Scope, method: str, code: int, seconds: float) -> None:
    engine: Engine = scope["app"].state.engine
    # The template, never the path: paths come from clients and their number is unbounded.
    route = scope["state"].get("template") or UNMATCHED_ROUTE
    method = method if method in _METHODS else "other"
    engine.metrics.requests.labels(route, method, str(code)).inc()
    found: Found | None = scope["state"].get("found")
    if found is None or found.rules.logged:
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
    # Apart from those that were served: where there is too much to do, rejections come by the
    # thousand, take no time, and would hide slow answers.
    if code not in _REFUSED_BY_ROUTE and "route" not in scope:
        route = UNMATCHED_ROUTE
    engine.metrics.request_duration.labels(route).observe(seconds)

"""Whether a request may have a body, and which: decided by its route and its head alone.

This is the only place that decides it. What is refused here is refused before admission and before
a byte of the body is read. A body that the route does not take is never read: the server drops its
bytes, and closes a connection that goes on sending them.
"""

from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.http.negotiation import NDJSON, media_type
from service.errors import BodyTooLargeError, UnsupportedMediaTypeError
from service.files.reading import FILE_TYPES

_LENGTH_DIGITS = 19  # of a Content-Length; with more it is over any limit


class BodyKind(Enum):
    """How the body of a request is read."""

    NONE = auto()  # not at all
    JSON = auto()  # whole, into memory
    FILE = auto()  # the same, of the types in FILE_TYPES
    LINES = auto()  # by its route, as it arrives


@dataclass(frozen=True, slots=True)
class RequestBody:
    """What is known of a body before it is read.

    Attributes:
        kind: how it is read.
        length: its Content-Length in bytes; 0 if it has none.
        limit: most bytes that it may have.
    """

    kind: BodyKind
    length: int = 0
    limit: int = 0


class LinesRoute(APIRoute):
    """A route for NDJSON only, which reads the body itself."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match requests with NDJSON; leave every other one to the next route of the path."""
        is_lines = media_type(Headers(scope=scope)) == NDJSON
        return super().matches(scope) if is_lines else (Match.NONE, {})


class FileRoute(APIRoute):
    """A route whose body is a file."""


class BodyRuleMiddleware:
    """Refuses a request whose route or body does not exist or is not accepted, by its head."""

    def __init__(self, app: ASGIApp, max_body_bytes: int, max_upload_bytes: int) -> None:
        """Wrap an application.

        Args:
            app: to wrap.
            max_body_bytes: of a JSON body, or a file.
            max_upload_bytes: of an NDJSON body.
        """
        self._app = app
        self._limits = {
            BodyKind.JSON: max_body_bytes,
            BodyKind.FILE: max_body_bytes,
            BodyKind.LINES: max_upload_bytes,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            scope["state"]["body"] = self._judge(scope)
        await self._app(scope, receive, send)

    def _judge(self, scope: Scope) -> RequestBody:
        """Return the body that a request may have.

        Raises:
            HTTPException: there is no such route (404), or not for this method (405).
            UnsupportedMediaTypeError: its route does not take this type.
            BodyTooLargeError: its Content-Length is over the limit.
        """
        kind = kind_of(_find_route(scope))
        if kind is BodyKind.NONE:
            return RequestBody(kind)
        headers, limit = Headers(scope=scope), self._limits[kind]
        if kind is BodyKind.JSON and not _is_json(media_type(headers)):
            raise UnsupportedMediaTypeError
        if kind is BodyKind.FILE and media_type(headers) not in FILE_TYPES:
            raise UnsupportedMediaTypeError(f"send a file as {', '.join(FILE_TYPES)}")
        length = _announced_length(headers)
        if length > limit:
            raise BodyTooLargeError(limit)
        return RequestBody(kind, length, limit)


def request_body(scope: Scope) -> RequestBody:
    """Return what `BodyRuleMiddleware` decided about the body of a request."""
    body: RequestBody = scope["state"]["body"]
    return body


def kind_of(route: BaseRoute) -> BodyKind:
    """Return how a route takes the body of a request."""
    if isinstance(route, LinesRoute):
        return BodyKind.LINES
    if isinstance(route, FileRoute):
        return BodyKind.FILE
    has_body = isinstance(route, APIRoute) and route.body_field is not None
    return BodyKind.JSON if has_body else BodyKind.NONE


def _find_route(scope: Scope) -> BaseRoute:
    """Return the route of a request, and note its template, also where it is refused."""
    of_another_method: BaseRoute | None = None
    for route in scope["app"].router.routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            _note_template(scope, route)
            return route  # type: ignore[no-any-return]
        if match is Match.PARTIAL:
            of_another_method = of_another_method or route
    if of_another_method is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    _note_template(scope, of_another_method)
    raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)


def _note_template(scope: Scope, route: BaseRoute) -> None:
    scope["state"]["template"] = getattr(route, "path", None)


def route_template(scope: Scope) -> str | None:
    """Return the path of the route of a request ("/documents/{id}"), or None if it has none.

    It is known even where the request was rejected before its route was called.
    """
    template: str | None = scope["state"].get("template")
    return template


def _is_json(kind: str) -> bool:
    name, _, subtype = kind.partition("/")
    return name == "application" and (subtype == "json" or subtype.endswith("+json"))


def _announced_length(headers: Headers) -> int:
    announced = headers.get("content-length", "")
    if not (announced.isascii() and announced.isdecimal()):
        return 0
    return int(announced[: _LENGTH_DIGITS + 1])

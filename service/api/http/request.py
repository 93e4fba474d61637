"""What is known of a request by its head: its path, its media types, and the body it may have.

This is the only place that decides whether a body is read. What is refused here is refused before
admission and before a byte of the body is read. A body that the route does not take is never read:
the server drops its bytes, and closes a connection that goes on sending them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import BodyTooLargeError, NotAcceptableError, UnsupportedMediaTypeError
from service.files import FILE_TYPES

COLLECTIONS = "collections"
# First segments of the paths of one collection, which follow its prefix.
COLLECTION_PARTS = {
    *("match", "compare", "index", "documents", "pairs", "feedback", "jobs", "standing-queries"),
    "v1",
}


def first_segment(path: str) -> str:
    """Return the first segment of a path: "match" of "/match"."""
    return path.split("/", 2)[1] if path.startswith("/") else path


def split_path(path: str) -> tuple[str | None, str]:
    """Return the collection that a path is below, if it is, and the path in it.

    "/collections/papers/match" is "/match" of "papers"; "/collections/papers" is a path of its own.
    """
    parts = path.split("/", 4)  # "", "collections", the name, the first segment below, the rest
    below = 3
    if len(parts) <= below or parts[1] != COLLECTIONS or parts[below] not in COLLECTION_PARTS:
        return None, path
    return parts[2], "/" + "/".join(parts[below:])


JSON, NDJSON = "application/json", "application/x-ndjson"


def media_type(headers: Headers) -> str:
    """Return the media type of a body, in lower case and without parameters; "" if not given."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def choose_media_type(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered media type that the client prefers, or raise NotAcceptableError.

    Args:
        accept: the Accept header; None or "" accepts anything.
        offered: media types without parameters; of equals, the first is preferred.
    """
    ranges = [_range(part) for part in (accept or "*/*").split(",") if part.strip()]
    qualities = {kind: _quality(kind, ranges) for kind in offered}
    best = max(offered, key=lambda kind: qualities[kind])
    if qualities[best] <= 0:
        raise NotAcceptableError(offered)
    return best


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            quality = _number(value)
    return kind, quality


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _quality(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the weight that the most specific range gives to a media type."""
    general = f"{kind.partition('/')[0]}/*"
    for media_range in (kind, general, "*/*"):
        weights = [quality for name, quality in ranges if name == media_range]
        if weights:
            return max(weights)
    return 0.0


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
        """Wrap an application."""
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
        """Return the body that a request may have."""
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

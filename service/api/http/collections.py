"""Which collection a request is for: that of its path, else that of its API key, else the default.

The paths of one collection are those of the default one behind a prefix. As below a mount, the
prefix becomes the `root_path`: routes, and what counts and limits requests by them, see the rest.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.http.access import key_of
from service.api.http.paths import COLLECTION_PARTS, first_segment, split_path
from service.engine import DEFAULT, Engine
from service.errors import CollectionNotFoundError


class CollectionMiddleware:
    """Finds the collection of a request, and keeps it open until the response has ended.

    Refuses what names a collection that does not exist, cannot be used, or is not that of the API
    key, before a byte of the body is read.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named, path = split_path(scope["path"])
        bound = bound_to(scope)
        if named is not None:
            if bound not in (None, named):
                raise CollectionNotFoundError(named)
            # In place: the middleware around this one reads the route from the same scope.
            scope["root_path"] = scope.get("root_path", "") + scope["path"].removesuffix(path)
        name = scope["state"]["collection"] = named or bound or DEFAULT
        engine: Engine | None = scope["app"].state.engine
        if engine is None or first_segment(path) not in COLLECTION_PARTS:
            await self._app(scope, receive, send)
            return
        with engine.collections.use(name) as used:
            scope["state"]["used"] = used
            await self._app(scope, receive, send)


def bound_to(scope: Scope) -> str | None:
    """Return the one collection that the API key of a request may see; None if it sees all."""
    key = key_of(scope)
    return None if key is None else key.collection

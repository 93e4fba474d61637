"""The HTTP application."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from service.api import bulk, compare, documents, family, index, jobs, match, ops, similar
from service.api.docs import install_docs
from service.api.door import DoorMiddleware
from service.api.errors import install_error_handlers
from service.api.middleware import BodyMiddleware, RequestMiddleware
from service.api.openapi import install_openapi
from service.engine import Engine, close_engine, installed_version, open_engine
from service.settings import Settings

DESCRIPTION = """\
Finds the documents that match a long document. It reads whole documents and answers with whole
documents; every answer says how much was read and what was left out.

Errors are `application/problem+json` (RFC 9457); the `type` of each is described at its path.
"""

_LOG = logging.getLogger(__name__)


def create_app(settings: Settings, engine: Engine | None = None) -> FastAPI:
    """Make the application.

    Args:
        settings: limits and, when there is no `engine`, what to open.
        engine: used as it is, and left open; when None, one is opened when the application
            starts, and drained and closed when it ends.
    """
    app = FastAPI(
        title="Longmatch",
        version=installed_version(),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(settings) if engine is None else None,
    )
    modules = (match, compare, bulk, index, jobs, similar, family, documents, ops)
    routers = [module.router for module in modules]
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes]
    app.state.engine = engine
    install_docs(app)
    install_openapi(app)
    install_error_handlers(app)
    app.add_middleware(BodyMiddleware, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(DoorMiddleware, upload_seconds=settings.upload_seconds)
    app.add_middleware(RequestMiddleware)  # added last: around all others
    return app


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = await asyncio.to_thread(open_engine, settings)
        app.state.engine = engine
        try:
            yield
        finally:
            if not await engine.admission.drain(settings.drain_seconds):
                _LOG.warning("requests were given up after %s s", settings.drain_seconds)
            await asyncio.to_thread(close_engine, engine)

    return lifespan

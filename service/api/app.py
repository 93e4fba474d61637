"""The HTTP application."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

from service.api import compare, documents, index, jobs, match, ops, similar
from service.api.http.admission import AdmissionMiddleware
from service.api.http.errors import install_error_handlers
from service.api.http.middleware import BodyMiddleware, RequestMiddleware
from service.api.http.openapi import install_openapi
from service.engine import Engine, installed_version
from service.settings import Settings
from service.startup import close_engine, open_engine

router = APIRouter(include_in_schema=False)


def install_docs(app: FastAPI) -> None:
    """Serve the documentation page and the files that it needs."""
    app.include_router(router)
    app.mount("/docs/static", StaticFiles(directory=swagger_ui_path), name="swagger-ui")


@router.get("/")
async def get_root() -> RedirectResponse:
    """Lead people to the documentation until there is a page for them."""
    return RedirectResponse("docs")


@router.get("/docs")
async def get_docs() -> HTMLResponse:
    """Return the page; its addresses are relative, so that a proxy may add a prefix."""
    return get_swagger_ui_html(
        title="Longmatch",
        openapi_url="openapi.json",
        swagger_js_url="docs/static/swagger-ui-bundle.js",
        swagger_css_url="docs/static/swagger-ui.css",
        swagger_favicon_url="docs/static/favicon-32x32.png",
        # None: else the page asks a validator on the internet.
        swagger_ui_parameters={"validatorUrl": None, "displayRequestDuration": True},
    )


# The first route that matches is taken: those that take some requests of a path go first.
ROUTERS = (
    match.router,
    compare.router,
    index.bulk_router,
    index.router,
    jobs.router,
    similar.router,
    documents.family_router,
    documents.router,
    ops.router,
)
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
    for router in ROUTERS:
        app.include_router(router)
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    app.state.engine = engine
    install_docs(app)
    install_openapi(app)
    install_error_handlers(app)
    app.add_middleware(BodyMiddleware, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(AdmissionMiddleware, upload_seconds=settings.upload_seconds)
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

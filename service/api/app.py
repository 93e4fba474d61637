"""The HTTP application."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

from service.api import compare, documents, index, jobs, match, ops, page, similar
from service.api.http.admission import AdmissionMiddleware
from service.api.http.errors import install_error_handlers
from service.api.http.middleware import BodyMiddleware, RequestMiddleware
from service.api.http.openapi import DescribedFastAPI
from service.engine import Engine, installed_version
from service.settings import Settings
from service.startup import close_engine, open_engine

# The first route that matches is used: routes for some requests of a path come first.
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
documents; every response says how much was read and what was left out.

Errors are `application/problem+json` (RFC 9457); the `type` of each is described at its path.
"""

_LOG = logging.getLogger(__name__)

docs_router = APIRouter(include_in_schema=False)


def create_app(settings: Settings, engine: Engine | None = None) -> FastAPI:
    """Create the application.

    Args:
        settings: limits and, without an `engine`, what to open.
        engine: used as it is and left open; if None, one is opened when the application starts,
            and drained and closed when it ends.
    """
    app = DescribedFastAPI(
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
    app.include_router(page.router)
    app.mount(page.STATIC_PATH, page.PageFiles(), name="page")
    _install_docs(app)
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
                _LOG.warning("active requests were cancelled after %s s", settings.drain_seconds)
            await asyncio.to_thread(close_engine, engine)

    return lifespan


def _install_docs(app: FastAPI) -> None:
    """Serve the documentation page and its files."""
    app.include_router(docs_router)
    app.mount("/docs/static", StaticFiles(directory=swagger_ui_path), name="swagger-ui")


@docs_router.get("/docs")
async def get_docs() -> HTMLResponse:
    """Return the documentation page; its URLs are relative, so that a proxy may add a prefix."""
    return get_swagger_ui_html(
        title="Longmatch",
        openapi_url="openapi.json",
        swagger_js_url="docs/static/swagger-ui-bundle.js",
        swagger_css_url="docs/static/swagger-ui.css",
        swagger_favicon_url="docs/static/favicon-32x32.png",
        # None: otherwise the page calls a validator on the internet.
        swagger_ui_parameters={"validatorUrl": None, "displayRequestDuration": True},
    )

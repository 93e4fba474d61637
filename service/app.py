"""The HTTP application."""

from pathlib import Path

import fastapi_offline
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.staticfiles import StaticFiles
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from index.directory.data_directory import KEY_FILE
from service.access import LOOPBACK, AllowedHosts, is_loopback
from service.collections import routes as collections
from service.compare import routes as compare
from service.documents import routes as documents
from service.embeddings import routes as embeddings
from service.engine import Engine, installed_version
from service.errors import SettingsError
from service.feedback import routes as feedback
from service.gate import FilesMount, FoundRoute, Gate
from service.keys import KeyRing
from service.map import routes as corpus_map
from service.match import routes as match
from service.openapi import DescribedFastAPI, Router
from service.ops import routes as ops
from service.problem_responses import install_error_handlers
from service.settings import Settings
from service.standing import routes as standing
from service.text import routes as text
from service.uploads import routes as uploads
from service.web import page

# The first route that matches is used: routes for some requests of a path come first.
ROUTERS = (
    match.router,
    text.router,
    match.pairs_router,
    feedback.router,
    compare.router,
    embeddings.router,
    uploads.lines_router,
    documents.index_router,
    uploads.router,
    standing.router,
    match.similar_router,
    documents.family_router,
    documents.router,
    corpus_map.router,
    collections.router,
    ops.router,
)
DESCRIPTION = """\
Finds the documents that match a long document. It reads whole documents and answers with whole
documents; every response says how much was read and what was left out.

Each collection has documents and an index of its own. Paths without /collections/NAME are those of
the collection that the API key is bound to, or of the one named `default`.

Errors are `application/problem+json` (RFC 9457); the `type` of each is described at its path.
Every path that has GET has HEAD, too.
"""

docs_router = Router(page.RULES, include_in_schema=False)


def describe_app() -> FastAPI:
    """Create an application of all routes, for its OpenAPI document: it has no engine."""
    app = DescribedFastAPI(
        title="Longmatch",
        version=installed_version(),
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Metrics and logs are our own, and its logs of errors would have messages.
        telemetry={"auto_configure": True, "metrics": False, "logs": False},
    )
    for router in (*ROUTERS, page.router, docs_router):
        app.router.routes.extend(router.all_routes)
    return app


def create_app(
    settings: Settings, engine: Engine, bound_to: str = LOOPBACK, *, takes_keys: bool = True
) -> FastAPI:
    """Create the application.

    Args:
        settings: the names of the service and who may ask.
        engine: used as it is and left open.
        bound_to: the address that the server listens on, which decides the names under which it is
            reached.
        takes_keys: whether keys count; not for a caller in this process, who has the files anyway.
    """
    app = describe_app()
    app.state.engine = engine
    swagger = StaticFiles(directory=Path(fastapi_offline.__file__).parent / "static")
    app.router.routes += [
        FilesMount("/static", page.PageFiles(directory=page.FILES)),
        FilesMount("/docs/static", swagger),
    ]
    app.router.middleware_stack = FoundRoute(app.router.middleware_stack)
    install_error_handlers(app)
    hosts = AllowedHosts(bound_to, settings.allowed_hosts)
    app.add_middleware(Gate, settings=settings, hosts=hosts, takes_keys=takes_keys)
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.trusted_proxies))
    return app


def check_exposure(settings: Settings, bound_to: str) -> None:
    """Refuse, with SettingsError, to listen where others can reach a service without API keys."""
    if settings.allow_anonymous or is_loopback(bound_to):
        return
    if not KeyRing(settings.data / KEY_FILE).required:
        raise SettingsError(
            f"{bound_to} can be reached by others, and {settings.data} has no API keys: make one "
            "with longmatch keys create, or set LONGMATCH_ALLOW_ANONYMOUS=true"
        )


@docs_router.get("/openapi.json")
async def get_openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@docs_router.get("/docs")
async def get_docs() -> HTMLResponse:
    """Return the documentation page; its URLs are relative, so that a proxy may add a prefix."""
    return get_swagger_ui_html(
        title="Longmatch",
        openapi_url="openapi.json",
        swagger_js_url="docs/static/swagger-ui-bundle.js",
        swagger_css_url="docs/static/swagger-ui.css",
        swagger_favicon_url="docs/static/favicon.png",
        # None: otherwise the page calls a validator on the internet.
        swagger_ui_parameters={"validatorUrl": None, "displayRequestDuration": True},
    )

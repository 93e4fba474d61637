"""The interactive documentation at /docs, with nothing from the internet."""

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

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

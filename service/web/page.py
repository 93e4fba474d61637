"""GET / and the files of the page, with the headers that they are served with."""

from functools import cache
from pathlib import Path

from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from service.gate import FilesMount
from service.openapi import Router
from service.web import report

FILES = Path(report.__file__).parent / "static"

# Of every file of the page. `no-cache` asks each time whether a file has changed.
HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@cache
def page() -> str:
    """Return the page, as HTML."""
    return (FILES / "index.html").read_text(encoding="utf-8")


def page_headers() -> dict[str, str]:
    """Return the headers of the page.

    Its policy is also that of the comparison that it shows in a frame, a document made in the
    browser: such a document has the policy of the page that made it besides its own.
    """
    policy = (
        "default-src 'none'",
        f"script-src 'self' {report.script_source()}",
        f"style-src 'self' {report.style_source()}",
        "connect-src 'self'",
        "img-src 'self'",
        "frame-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {**HEADERS, "Content-Security-Policy": "; ".join(policy)}


RULES = FilesMount.rules
router = Router(RULES, include_in_schema=False)


@router.get("/")
async def get_page() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(page(), headers=page_headers())


class PageFiles(StaticFiles):
    """The style and the modules of the page."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, with the headers of all files of the page."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response

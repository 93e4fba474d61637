"""GET / and the files of the page."""

from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from service.api.openapi import Router
from service.web import search_page

STATIC_PATH = "/static"

router = Router(include_in_schema=False)


@router.get("/")
async def get_page() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(search_page.page(), headers=search_page.page_headers())


class PageFiles(StaticFiles):
    """The style and the modules of the page."""

    def __init__(self) -> None:
        super().__init__(directory=search_page.FILES)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, with the headers of all files of the page."""
        response = await super().get_response(path, scope)
        response.headers.update(search_page.HEADERS)
        return response

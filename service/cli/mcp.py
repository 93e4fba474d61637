"""The command that serves a collection to assistants, by the Model Context Protocol: mcp."""

import os
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer
from pydantic import Field

from index.optional_dependencies import require_extra
from index.search.records import DEFAULT_MODE, Mode
from service.cli import checks
from service.cli.checks import OptionError

KEY = "LONGMATCH_API_KEY"
INSTRUCTIONS = (
    "Longmatch finds the documents of a collection that match a whole long document. Match first; "
    "compare two documents to see where they match; read passages by their offsets, which count "
    "characters of the whole text. A probability is calibrated; null means that none was measured."
)
_HOST = "127.0.0.1"  # alone: anyone who reaches the port may do what the key allows
_TIMEOUT = 120.0  # seconds; a book takes a minute to encode on two cores
_PASSAGES = 20
_CHARACTERS = 4_000


_COMPARED = ("score", "probability", "relation", "left_coverage", "right_coverage", "passages")


def mcp(
    url: Annotated[
        str, typer.Option(help=f"The server to ask; its key, if it takes any, is in {KEY}.")
    ] = "http://127.0.0.1:8000",
    collection: Annotated[str, typer.Option(help="A collection other than the main one.")] = "",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Serve HTTP at /mcp of this port, not stdio."),
    ] = None,
) -> None:
    """Let assistants match, compare and read documents of a running server (MCP)."""
    require_extra("mcp", "longmatch mcp")
    if not url.startswith(("http://", "https://")):
        raise OptionError("--url", f"{url}: must begin with http:// or https://")
    if port is not None:
        checks.address(_HOST, port)
    path = f"/collections/{quote(collection, safe='')}" if collection else ""
    server = make_server(url.rstrip("/") + path)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host=_HOST, port=port)


def make_server(url: str) -> Any:
    """Make the `MCPServer` of the collection at `url`; it takes the extra `mcp`."""
    import httpx2
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("longmatch", instructions=INSTRUCTIONS)
    key = os.environ.get(KEY)
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def ask(method: Literal["GET", "POST"], path: str, body: Any = None) -> dict[str, Any]:
        try:
            async with httpx2.AsyncClient(
                base_url=url, timeout=_TIMEOUT, headers=headers
            ) as client:
                answer = await client.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise ToolError(f"Longmatch does not answer at {url}: {error}") from error
        try:
            content = answer.json()
        except ValueError as error:
            raise ToolError(
                f"{url} is no Longmatch server (status {answer.status_code})"
            ) from error
        if answer.is_error:
            details = [
                f"{error['pointer']}: {error['detail']}" for error in content.get("errors", ())
            ]
            raise ToolError(
                " ".join([content.get("detail", f"status {answer.status_code}"), *details])
            )
        return dict(content)

    @server.tool()
    async def match(
        text: Annotated[str | None, Field(description="The whole document to match.")] = None,
        id: Annotated[str | None, Field(description="Or the id of a stored document.")] = None,
        top_k: Annotated[int, Field(ge=1, le=100)] = 5,
        mode: Mode = DEFAULT_MODE,
    ) -> list[dict[str, Any]]:
        """Find the documents that match a whole document, best first, and the best passages.

        Passages have the query on the left, and their offsets count characters of the whole text.
        `relevant` is false where a random document may score as high.
        """
        body = {"top_k": top_k, "mode": mode, "explain": {"passages": 2, "matches": top_k}}
        found = await ask("POST", "/match", body | _given(text=text, id=id))
        return [_match(hit) for hit in found["matches"]]

    @server.tool()
    async def compare(
        left_text: str | None = None,
        left_id: str | None = None,
        right_text: str | None = None,
        right_id: str | None = None,
        differences: Annotated[
            bool, Field(description="Say what each has that the other lacks.")
        ] = False,
    ) -> dict[str, Any]:
        """Compare two documents, each a text or the id of a stored document: where they match.

        The coverage of a side is the share of its text that the passages cover. Differences are
        block by block: `nearest` is the closest part of the other text; `changed` is there in other
        words.
        """
        asked = {
            "left": _given(text=left_text, id=left_id),
            "right": _given(text=right_text, id=right_id),
            "passages": _PASSAGES,
            "differences": differences,
        }
        found = await ask("POST", "/compare", asked)
        return {name: found[name] for name in (*_COMPARED, "differences")}

    @server.tool()
    async def read_passage(
        id: str,
        start: Annotated[int, Field(ge=0)] = 0,
        characters: Annotated[int, Field(ge=1, le=50_000)] = _CHARACTERS,
    ) -> dict[str, Any]:
        """Read a part of a stored document, from `start` on; `characters` are of the whole text."""
        found = await ask("GET", f"/documents/{quote(id, safe='')}?text=true")
        text = found["text"]
        part = text[start : start + characters]
        return {"title": found["title"], "characters": len(text), "text": part}

    return server


def _given(**fields: str | None) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def _match(hit: dict[str, Any]) -> dict[str, Any]:
    explanation = hit["explanation"] or {}
    return {
        **{name: hit[name] for name in ("id", "title", "score", "probability", "relevant")},
        "shared_words": [term["term"] for term in hit["terms"]],
        "passages": explanation.get("passages", []),
    }

"""POST /text: a file, as its bytes, becomes the text that POST /match takes."""

from typing import Any

from fastapi import Request
from pydantic import BaseModel, Field

from service.access import client_of
from service.body import BodyKind, media_type
from service.deps import EngineDep
from service.gate import Rules
from service.openapi import READ, Router
from service.text.logic import FILE_TYPES

router = Router(Rules(scope="read", collection=False, body=BodyKind.FILE), tags=["match"])

REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        kind: {
            "schema": {"type": "string", "format": "binary", "minLength": 1},
            "examples": {"file": {"summary": f"The bytes of a {suffix}", "value": "Ants and bees"}},
        }
        for kind, suffix in FILE_TYPES.items()
    },
}


class FileTextResponse(BaseModel):
    """What a file says."""

    title: str = Field(description="Of its properties, its first heading or its first line.")
    text: str = Field(description="The whole text, as `longmatch index` would index it.")
    metadata: dict[str, str | int] = Field(
        description="What it says of itself: `author`, `date` (ISO 8601), `pages`; those known."
    )
    characters: int = Field(description="Of the text.")


@router.post(
    "/text",
    summary="Read the text of a file",
    responses=READ({200: "The text, which POST /match and POST /index take"}),
    openapi_extra={"requestBody": REQUEST_BODY},
)
async def post_text(request: Request, engine: EngineDep) -> FileTextResponse:
    """Return title, text and metadata of a PDF, a DOCX, an EPUB, or a text file, HTML included.

    The Content-Type says which of them the body is. The file is read in a process with limits of
    memory and time, and not kept.
    """
    found = await engine.files.read(
        await request.body(),
        media_type(request.headers),
        engine.settings.max_text_characters,
        client_of(request.scope),
    )
    return FileTextResponse(
        title=found.title,
        text=found.text,
        metadata=dict(found.metadata),
        characters=len(found.text),
    )

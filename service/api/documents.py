"""GET and DELETE /documents/{id}."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from service.api.deps import Admitted, EngineDep
from service.api.openapi import json_example, problem_responses
from service.api.problems import (
    DOCUMENT_NOT_FOUND,
    INTERNAL_ERROR,
    INVALID_INPUT,
    NOT_READY,
    OVERLOADED,
    SHUTTING_DOWN,
)
from service.api.schemas import DocumentResponse, document_response
from service.indexing import delete_document, find_document

router = APIRouter(prefix="/documents", tags=["documents"], dependencies=[Admitted])

ANSWER = {
    "id": "articles/bees",
    "title": "Bees",
    "metadata": {"year": 2021},
    "receipt": {"tokens": 812, "tokens_read": 812, "blocks": 7, "blocks_left_out": 0},
    "indexed_at": "2026-01-31T12:00:00+00:00",
}
PROBLEMS = problem_responses(
    DOCUMENT_NOT_FOUND, INVALID_INPUT, INTERNAL_ERROR, OVERLOADED, NOT_READY, SHUTTING_DOWN
)

DocumentId = Annotated[
    str,
    Path(
        alias="id",
        description="Your id of the document, percent-encoded; it may contain slashes.",
        openapi_examples={"bees": {"value": "articles/bees"}},
    ),
]


@router.get(
    "/{id:path}",
    summary="Look at a stored document",
    response_model_exclude_none=True,
    responses={200: json_example(ANSWER, "The document, without its text"), **PROBLEMS},
)
async def get_document(
    document_id: DocumentId,
    engine: EngineDep,
    text: Annotated[bool, Query(description="Give the text, too.")] = False,
) -> DocumentResponse:
    """Return title, metadata, receipt and, when asked for, the text of a document."""
    stored = await find_document(engine, document_id)
    return document_response(stored, with_text=text)


@router.delete(
    "/{id:path}",
    summary="Delete a document",
    status_code=204,
    responses={204: {"description": "It is deleted; no match finds it any more"}, **PROBLEMS},
)
async def remove_document(document_id: DocumentId, engine: EngineDep) -> None:
    """Delete a document for good."""
    await delete_document(engine, document_id)

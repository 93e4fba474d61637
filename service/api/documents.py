"""GET /documents, GET and DELETE /documents/{id}."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import StreamingResponse

from index.store.listing import BEFORE_ALL
from service.api.deps import Admitted, EngineDep
from service.api.http.negotiation import choose_media_type
from service.api.http.openapi import json_example, problem_responses
from service.api.http.problems import (
    DOCUMENT_NOT_FOUND,
    INTERNAL_ERROR,
    INVALID_INPUT,
    NOT_ACCEPTABLE,
    NOT_READY,
    OVERLOADED,
    SHUTTING_DOWN,
)
from service.api.schemas.common import DocumentResponse, document_response
from service.api.schemas.documents import DocumentsResponse, documents_response
from service.api.schemas.paging import DEFAULT_PAGE, Cursor, PageSize
from service.documents import export_documents, family_of, list_documents
from service.indexing import delete_document, find_document

router = APIRouter(prefix="/documents", tags=["documents"], dependencies=[Admitted])

ANSWER = {
    "id": "articles/bees",
    "title": "Bees",
    "metadata": {"year": 2021},
    "receipt": {"tokens": 812, "tokens_read": 812, "blocks": 7, "blocks_left_out": 0},
    "indexed_at": "2026-01-31T12:00:00+00:00",
}
JSON, NDJSON = "application/json", "application/x-ndjson"
PAGE = json_example(
    {"documents": [{**ANSWER, "family": 12}], "next_cursor": "WzEsICJhcnRpY2xlcy9iZWVzIl0"},
    "A page; with `Accept: application/x-ndjson` all documents with their texts, one on a line, "
    "as `longmatch index` reads them",
)
PAGE["content"][NDJSON] = {
    "schema": {"type": "string"},
    "examples": {
        "lines": {
            "value": '{"id": "articles/bees", "title": "Bees", "text": "Bees dance …", '
            '"metadata": {"year": 2021}}\n'
        }
    },
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
    "",
    summary="List the stored documents, or export them",
    response_model=DocumentsResponse,
    responses={
        200: PAGE,
        **problem_responses(
            NOT_ACCEPTABLE, INVALID_INPUT, INTERNAL_ERROR, OVERLOADED, NOT_READY, SHUTTING_DOWN
        ),
    },
)
async def get_documents(
    engine: EngineDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> DocumentsResponse | StreamingResponse:
    """Return the documents in the order of their ids, a page at a time or, as lines, all.

    A document that is there from the first page to the last is on exactly one of them, whatever
    is written in between. The export is streamed, a part at a time, and has no limit; its lines
    can be indexed again.
    """
    if choose_media_type(accept, (JSON, NDJSON)) == NDJSON:
        lines = await export_documents(engine, cursor)
        return StreamingResponse(lines, media_type=NDJSON)
    return documents_response(await list_documents(engine, cursor, limit), limit)


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
    """Return title, metadata, receipt, family and, when asked for, the text of a document."""
    stored = await find_document(engine, document_id)
    return document_response(stored, await family_of(engine, document_id), with_text=text)


@router.delete(
    "/{id:path}",
    summary="Delete a document",
    status_code=204,
    responses={204: {"description": "It is deleted; no match finds it any more"}, **PROBLEMS},
)
async def remove_document(document_id: DocumentId, engine: EngineDep) -> None:
    """Delete a document for good."""
    await delete_document(engine, document_id)

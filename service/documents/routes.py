"""GET /documents, GET and DELETE /documents/{id}, GET /documents/{id}/family."""

from typing import Annotated

from fastapi import Header, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, JsonValue
from starlette.routing import Match
from starlette.types import Scope

from index.store.listing import BEFORE_ALL, Page
from service.body import JSON, NDJSON, choose_media_type
from service.deps import CollectionDep
from service.documents.logic import (
    delete_document,
    export_documents,
    family_of,
    find_document,
    find_family,
)
from service.fields import (
    DEFAULT_PAGE,
    Cursor,
    PageSize,
    nullable,
    optional,
    write_cursor,
)
from service.gate import RuledRoute
from service.openapi import READ, WRITE, Router, json_example, of_route, receipt_example
from service.problems import DOCUMENT_NOT_FOUND, NOT_ACCEPTABLE
from service.schemas import ReceiptBody, receipt_body
from service.threads import run_in


class ListedBody(BaseModel, from_attributes=True):
    """A stored document, without its text."""

    id: str
    title: str
    metadata: dict[str, JsonValue]
    receipt: ReceiptBody
    indexed_at: str = Field(description="When its text was stored, ISO 8601 in UTC.")
    family: int | None = nullable(
        "Number of its family of copies and versions; null where it is in none."
    )


class DocumentResponse(ListedBody):
    """A stored document."""

    family: int | None = optional("Number of its family of copies and versions, if it has one.")
    text: str | None = optional("Only with `?text=true`.")


class DocumentsResponse(BaseModel):
    """A page of the stored documents, in the order of their ids."""

    documents: list[ListedBody]
    damaged: list[str] = Field(
        description="Ids of documents of this page that are damaged, and therefore left out."
    )
    next_cursor: str | None = nullable("What to give as `cursor` for the next page; null: no more.")


class MemberBody(BaseModel):
    """A document of a family."""

    id: str
    title: str
    is_copy: bool = Field(
        serialization_alias="copy",
        description="Whether its text is identical to that of the requested document.",
    )


class FamilyResponse(BaseModel):
    """A page of a family in the order of ids, including the requested document."""

    family: int | None = nullable("Number of the family; null if the document has none.")
    documents: list[MemberBody] = Field(description="Empty if it has none.")
    next_cursor: str | None = nullable("The `cursor` of the next page; null on the last page.")


def documents_response(page: Page) -> DocumentsResponse:
    """Shape a page; one that is not full is the last."""
    return DocumentsResponse(
        documents=[ListedBody.model_validate(document) for document in page.documents],
        damaged=list(page.damaged),
        next_cursor=write_cursor(page.last) if page.full and page.last is not None else None,
    )


class UnescapedRoute(RuledRoute):
    """A route below an id that may contain slashes; its own last segment must not be escaped.

    So `/documents/a%2Fsimilar` is the document `a/similar`, not the documents similar to `a`.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the path of a request is this one."""
        last = self.path[self.path.rindex("/") :].encode()
        if not scope.get("raw_path", last).endswith(last):
            return Match.NONE, {}
        return super().matches(scope)


router = Router(prefix="/documents", tags=["documents"])
# Must be matched before `router`, whose `{id:path}` takes the whole path.
family_router = Router(prefix="/documents", tags=["documents"], route_class=UnescapedRoute)

ANSWER = {
    "id": "articles/bees",
    "title": "Bees",
    "metadata": {"year": 2021},
    "receipt": receipt_example(812, 7),
    "indexed_at": "2026-01-31T12:00:00+00:00",
}
PAGE = json_example(
    {
        "documents": [{**ANSWER, "family": 12}],
        "damaged": [],
        "next_cursor": "WzEsICJhcnRpY2xlcy9iZWVzIl0",
    },
    "A page; with `Accept: application/x-ndjson`, all documents with their texts, one on each "
    "line, as `longmatch index` reads them",
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
FAMILY = {
    "family": 12,
    "documents": [
        {"id": "articles/bees", "title": "Bees", "copy": True},
        {"id": "articles/bees-2", "title": "Bees, second edition", "copy": False},
    ],
    "next_cursor": None,
}
PROBLEMS = {**WRITE, **of_route(DOCUMENT_NOT_FOUND)}

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
        **READ,
        **of_route(NOT_ACCEPTABLE),
    },
)
async def get_documents(
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> DocumentsResponse | StreamingResponse:
    """Return the documents in the order of their ids: one page, or all of them as NDJSON.

    A document that is stored from the first page to the last is on exactly one of them, whatever
    is written in between. The export is streamed and has no limit; its lines can be indexed again.
    """
    if choose_media_type(accept, (JSON, NDJSON)) == NDJSON:
        lines = await export_documents(collection, cursor)
        return StreamingResponse(lines, media_type=NDJSON)
    pages = collection.data.store.pages
    return documents_response(await run_in(collection.engine.readers, pages.listed, cursor, limit))


@router.get(
    "/{id:path}",
    summary="Get a stored document",
    response_model_exclude_none=True,
    responses={200: json_example(ANSWER, "The document, without its text"), **PROBLEMS},
)
async def get_document(
    document_id: DocumentId,
    collection: CollectionDep,
    text: Annotated[bool, Query(description="Return the text, too.")] = False,
) -> DocumentResponse:
    """Return title, metadata, receipt, family and, on request, the text of a document."""
    stored = await find_document(collection, document_id)
    document = stored.document
    return DocumentResponse(
        id=document.id,
        title=document.title,
        metadata=dict(document.metadata),
        receipt=receipt_body(stored.receipt),
        indexed_at=stored.indexed_at,
        family=await family_of(collection, document_id),
        text=document.text if text else None,
    )


@router.delete(
    "/{id:path}",
    summary="Delete a document",
    status_code=204,
    responses={204: {"description": "It is deleted; no match returns it any more"}, **PROBLEMS},
)
async def remove_document(document_id: DocumentId, collection: CollectionDep) -> None:
    """Delete a document permanently, with the feedback on it and on its matches."""
    await delete_document(collection, document_id)


@family_router.get(
    "/{id:path}/family",
    summary="List the copies and versions of a stored document",
    responses={200: json_example(FAMILY, "A page of its family"), **PROBLEMS},
)
async def get_family(
    document_id: DocumentId,
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
) -> FamilyResponse:
    """Return the documents whose texts are copies or versions of the text of this one."""
    number, members = await find_family(collection, document_id, cursor, limit)
    return FamilyResponse(
        family=number,
        documents=[
            MemberBody(id=member.id, title=member.title, is_copy=member.copy) for member in members
        ],
        next_cursor=write_cursor(members[-1].id) if len(members) == limit else None,
    )

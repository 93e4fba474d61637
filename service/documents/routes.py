"""POST /index with JSON, GET /documents, GET and DELETE /documents/{id}, and its family."""

from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import Body, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import PlainValidator, WithJsonSchema
from starlette.routing import Match
from starlette.types import Scope

from index.store.records import BEFORE_ALL
from service.body import JSON, NDJSON, choose_media_type
from service.deps import DEFAULT_PAGE, CollectionDep, Cursor, IdempotencyKey, PageSize, respond_once
from service.documents import logic, schemas
from service.gate import RuledRoute
from service.match.filter import parse_filter
from service.openapi import ENCODE, READ, WRITE, Router
from service.schemas import ReceiptBody, next_cursor
from service.state import StoredResponse
from service.threads import run_in
from service.uploads.routes import ACCEPTED, INDEX_PATH, LINES_BODY


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

FilterParameter = Annotated[
    Any,  # a `Filter`, or None
    PlainValidator(parse_filter),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    Query(
        alias="filter",
        description="A filter as of POST /match, as JSON.",
        openapi_examples={"some": {"value": '{"field": "year", "range": {"gte": 2020}}'}},
    ),
]
Order = Annotated[
    Literal["id", "title", "-title", "size", "-size", "date", "-date"],
    Query(
        description="By the tokens of a text, or the field `date` of the metadata; with a minus "
        "the last ones first. A cursor is that of one order.",
        openapi_examples={"newest": {"value": "-date"}},
    ),
]
PAGE = {
    "description": "A page; with `Accept: application/x-ndjson`, all documents with their texts, "
    "one on each line, as `longmatch index` reads them",
    "content": {NDJSON: {"schema": {"type": "string"}}},
}

StoredId = Annotated[
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
    response_model=schemas.DocumentsResponse,
    responses=READ({200: PAGE}, "not-acceptable"),
)
async def get_documents(
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
    sort: Order = "id",
    where: FilterParameter = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> schemas.DocumentsResponse | StreamingResponse:
    """Return the documents in the order of their ids or another: a page, or all as NDJSON.

    A document that is stored from the first page to the last is on exactly one of them, whatever
    is written in between. The export is streamed and has no limit; its lines can be indexed again.
    """
    if choose_media_type(accept, (JSON, NDJSON)) == NDJSON:
        lines = logic.export_documents(collection.data, cursor)
        parts = await logic.export_parts(collection.engine, lines)
        return StreamingResponse(parts, media_type=NDJSON)
    listed = await run_in(
        collection.engine.readers, logic.list_documents, collection, cursor, limit, sort, where
    )
    return schemas.DocumentsResponse(
        documents=[schemas.ListedBody.model_validate(document) for document in listed],
        next_cursor=next_cursor(listed, limit, partial(logic.cursor_in, sort)),
    )


@router.get(
    "/{id:path}",
    summary="Get a stored document",
    response_model_exclude_none=True,
    responses=WRITE({200: "The document, without its text"}, "document-not-found"),
)
async def get_document(
    document_id: StoredId,
    collection: CollectionDep,
    text: Annotated[bool, Query(description="Return the text, too.")] = False,
) -> schemas.DocumentResponse:
    """Return title, metadata, receipt, family and, on request, the text of a document."""
    stored = await logic.find_document(collection, document_id)
    readers, families = collection.engine.readers, collection.data.store.families
    family = (await run_in(readers, families.of_ids, [document_id])).get(document_id)
    document = stored.document
    return schemas.DocumentResponse(
        id=document.id,
        title=document.title,
        metadata=dict(document.metadata),
        receipt=ReceiptBody.model_validate(stored.receipt),
        indexed_at=stored.indexed_at,
        family=family,
        text=document.text if text else None,
    )


@router.delete(
    "/{id:path}",
    summary="Delete a document",
    status_code=204,
    responses=WRITE({204: "It is deleted; no match returns it any more"}, "document-not-found"),
)
async def remove_document(document_id: StoredId, collection: CollectionDep) -> None:
    """Delete a document permanently, with the feedback on it and on its matches."""
    await run_in(collection.writer, logic.delete_document, collection, document_id)


@family_router.get(
    "/{id:path}/family",
    summary="List the copies and versions of a stored document",
    responses=WRITE({200: "A page of its family"}, "document-not-found"),
)
async def get_family(
    document_id: StoredId,
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
) -> schemas.FamilyResponse:
    """Return the documents whose texts are copies or versions of the text of this one."""
    number, members = await run_in(
        collection.engine.readers, logic.find_family, collection, document_id, cursor, limit
    )
    return schemas.FamilyResponse(
        family=number,
        documents=[schemas.MemberBody.model_validate(member) for member in members],
        next_cursor=next_cursor(members, limit, attrgetter("id")),
    )


INDEX_REQUESTS = {
    "one": {
        "summary": "One document",
        "value": {
            "documents": [
                {
                    "id": "articles/bees",
                    "title": "Bees",
                    "text": "Bees dance to tell where flowers are. …",
                    "metadata": {"year": 2021},
                }
            ]
        },
    }
}

index_router = Router(tags=["documents"])


@index_router.get(
    "/facets",
    summary="Count the documents by their metadata",
    responses=READ({200: "The fields that tell documents apart, the commonest first"}),
)
async def get_facets(
    collection: CollectionDep, where: FilterParameter = None
) -> schemas.FacetsResponse:
    """Return how many documents have each of the frequent values of each field.

    Of lists every element counts. A field whose values all differ is left out.
    """
    found = await run_in(
        collection.engine.readers, logic.count_facets, collection.data.store, where
    )
    return schemas.FacetsResponse.model_validate({"facets": found}, from_attributes=True)


@index_router.post(
    INDEX_PATH,
    summary="Insert or replace documents",
    responses=ENCODE(
        {
            200: "All documents are durable, and the next match finds them",
            202: ACCEPTED,
        },
        "compression-ratio",
        "idempotency-key-in-use",
        "idempotency-key-reused",
    ),
    response_model=schemas.IndexResponse,
    openapi_extra={"requestBody": LINES_BODY},
)
async def post_index(
    request: Annotated[schemas.IndexRequest, Body(openapi_examples=INDEX_REQUESTS)],
    http: Request,
    collection: CollectionDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store documents: all of them or, if one is invalid, none.

    A document whose id is stored already is replaced; if its text is the same, it is not encoded
    again. As `application/x-ndjson`, one document on each line, any number of documents is accepted
    with 202 and indexed in the background, each line by itself: see /jobs.
    """

    http.state.changed_ids = [document.id for document in request.documents]

    async def work() -> StoredResponse:
        stored = await logic.index_documents(
            collection, request.to_documents(), strict=request.strict
        )
        return StoredResponse(200, stored.model_dump_json().encode())

    return await respond_once(http, collection, idempotency_key, work)

"""POST and GET /feedback, DELETE /feedback/{id}: verdicts, kept as long as their documents."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated

from fastapi import Body, Header, Path, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from index.store.records import BEFORE_ALL
from service.body import JSON, NDJSON, choose_media_type
from service.deps import DEFAULT_PAGE, CollectionDep, Cursor, PageSize
from service.documents.logic import CHARACTERS_AT_A_TIME, export_parts, json_lines
from service.engine import Collection
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.feedback.store import MAX_GRADE, FeedbackStore, JudgedQuery, Verdict
from service.gate import declare
from service.openapi import READ, WRITE, Router
from service.schemas import BodyModel, DocumentId, QueryBody, next_cursor, nullable
from service.threads import run_in


class FeedbackRequest(BodyModel):
    """A verdict on one match of one query."""

    query: QueryBody = Field(
        description="What was asked, as in POST /match: a text, or the id of a stored document."
    )
    match: DocumentId = Field(description="Id of the stored document that was the answer.")
    grade: Annotated[int, Field(ge=0, le=MAX_GRADE)] = Field(
        description="0: not relevant; 1: relevant; 2 and 3: more so, as judgements have them."
    )


class FeedbackPage(BaseModel):
    """A page of the feedback, in the order of ids."""

    feedback: list[Verdict]
    next_cursor: str | None = nullable("What to give as `cursor` for the next page; null: no more.")


router = Router(prefix="/feedback", tags=["feedback"])

REQUESTS = {
    "of a document": {
        "summary": "A match of a stored document",
        "value": {"query": {"id": "articles/bees"}, "match": "articles/wasps", "grade": 1},
    },
    "of a text": {
        "summary": "A match of a text",
        "value": {
            "query": {"text": "Bees dance to tell where flowers are. …", "title": "Bees"},
            "match": "articles/tax law",
            "grade": 0,
        },
    },
}
PAGE = {
    "description": "A page; with `Accept: application/x-ndjson`, all verdicts with the texts that "
    "were asked with, one on each line",
    "content": {NDJSON: {"schema": {"type": "string"}}},
}

FeedbackId = Annotated[
    str,
    Path(
        alias="id",
        max_length=64,
        description="Id of the verdict.",
        openapi_examples={"one": {"value": "6f1d3c5a0b9e48d7a2c4e6f8091b3d5f"}},
    ),
]


@router.post(
    "",
    summary="Say whether a match is relevant",
    responses=WRITE({200: "It is durable"}, "document-not-found", "feedback-full"),
)
async def post_feedback(
    request: Annotated[FeedbackRequest, Body(openapi_examples=REQUESTS)],
    http: Request,
    collection: CollectionDep,
) -> Verdict:
    """Keep one verdict for a query and a document; a later one replaces it.

    The same request may be repeated. Nothing changes at once: `longmatch tune` and `longmatch
    lab train` learn from it. Deleting a document deletes the feedback on it.
    """
    given = request.query
    query = JudgedQuery(given.id, given.text, given.title or "")
    _check(query, request.match, collection.engine.settings.max_text_characters)
    # The thread that deletes documents, too: none is deleted between the look and the write.
    verdict = await run_in(
        collection.writer, _give, collection, query, request.match, request.grade
    )
    http.state.changed_ids = [verdict.id]
    return verdict


@router.get(
    "",
    summary="List the feedback, or export it",
    response_model=FeedbackPage,
    responses=READ({200: PAGE}, "not-acceptable"),
)
@declare(scope="write")  # tells what others asked with
async def get_feedback(
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> FeedbackPage | StreamingResponse:
    """Return the verdicts in the order of their ids: one page, or all of them as NDJSON.

    It takes the scope write: texts that others asked with are in the export.
    """
    if choose_media_type(accept, (JSON, NDJSON)) == NDJSON:
        lines = _export(collection.feedback, cursor)
        parts = await export_parts(collection.engine, lines)
        return StreamingResponse(parts, media_type=NDJSON)
    verdicts = await run_in(collection.engine.readers, collection.feedback.listed, cursor, limit)
    return FeedbackPage(
        feedback=verdicts,
        next_cursor=next_cursor(verdicts, limit, attrgetter("id")),
    )


@router.delete(
    "/{id}",
    summary="Delete a verdict",
    status_code=204,
    responses=WRITE({204: "It is deleted"}, "feedback-not-found"),
)
async def delete_feedback(
    feedback_id: FeedbackId, http: Request, collection: CollectionDep
) -> None:
    """Delete one verdict."""
    await run_in(collection.writer, collection.feedback.remove, feedback_id)
    http.state.changed_ids = [feedback_id]


def _check(query: JudgedQuery, match_id: str, limit: int) -> None:
    errors = []
    if query.text is not None and not query.text.strip():
        errors.append(FieldError("#/query/text", "is empty"))
    if query.text is not None and len(query.text) > limit:
        errors.append(FieldError("#/query/text", f"is longer than {limit} characters", limit))
    if query.document_id == match_id:
        errors.append(FieldError("#/match", "is the query itself"))
    if errors:
        raise InvalidInputError(errors)


def _give(collection: Collection, query: JudgedQuery, match_id: str, grade: int) -> Verdict:
    named = {"#/query/id": query.document_id, "#/match": match_id}
    given = {pointer: name for pointer, name in named.items() if name is not None}
    stored = collection.data.store.content_hashes(list(given.values()))
    for pointer, name in given.items():
        if name not in stored:
            raise DocumentNotFoundError(name, pointer)
    return collection.feedback.put(query, match_id, grade)


def _fields(verdict: Verdict) -> dict[str, object]:
    judged = verdict.query
    asked = {"id": judged.document_id}
    if judged.document_id is None:
        asked = {"text": judged.text, "title": judged.title}
    return verdict.model_dump(by_alias=True) | {"query": asked}


def _export(feedback: FeedbackStore, after: str) -> Iterator[bytes]:
    """Yield the verdicts after an id as JSON Lines, with the texts of their queries."""
    while verdicts := feedback.whole(after, CHARACTERS_AT_A_TIME):
        yield json_lines(map(_fields, verdicts))
        after = verdicts[-1].id

"""POST and GET /feedback, DELETE /feedback/{id}."""

from typing import Annotated

from fastapi import Body, Header, Path, Request
from fastapi.responses import StreamingResponse

from index.store.listing import BEFORE_ALL
from service.api.deps import Admitted, CollectionDep
from service.api.feedback.schemas import (
    FeedbackBody,
    FeedbackPage,
    FeedbackRequest,
    feedback_body,
    feedback_page,
)
from service.api.http.negotiation import JSON, NDJSON, choose_media_type
from service.api.http.problems import (
    BODY_TOO_LARGE,
    DOCUMENT_NOT_FOUND,
    FEEDBACK_FULL,
    FEEDBACK_NOT_FOUND,
    INTERNAL_ERROR,
    INVALID_INPUT,
    MALFORMED_BODY,
    NOT_ACCEPTABLE,
    NOT_READY,
    OVERLOADED,
    SHUTTING_DOWN,
    STORAGE_FAILED,
    STORAGE_FULL,
    UNSUPPORTED_MEDIA_TYPE,
)
from service.api.openapi.responses import json_example, problem_responses
from service.api.openapi.router import Router
from service.api.schemas.paging import DEFAULT_PAGE, Cursor, PageSize
from service.matching.feedback import (
    export_feedback,
    give_feedback,
    list_feedback,
    remove_feedback,
)

router = Router(prefix="/feedback", tags=["feedback"], dependencies=[Admitted])

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
ANSWER = {
    "id": "6f1d3c5a0b9e48d7a2c4e6f8091b3d5f",
    "query": {"id": "articles/bees", "title": ""},
    "match": "articles/wasps",
    "grade": 1,
    "created": "2026-01-31T12:00:00+00:00",
    "changed": "2026-01-31T12:00:00+00:00",
}
PAGE = json_example(
    {"feedback": [ANSWER], "next_cursor": None},
    "A page; with `Accept: application/x-ndjson`, all verdicts with the texts that were asked "
    "with, one on each line",
)
LINE = (
    '{"id": "6f1d3c5a0b9e48d7a2c4e6f8091b3d5f", "query": {"text": "Bees dance …", "title": "Bees"},'
    ' "match": "articles/wasps", "grade": 1, "created": "2026-01-31T12:00:00+00:00", '
    '"changed": "2026-01-31T12:00:00+00:00"}\n'
)
PAGE["content"][NDJSON] = {"schema": {"type": "string"}, "examples": {"lines": {"value": LINE}}}
PROBLEMS = (INVALID_INPUT, INTERNAL_ERROR, OVERLOADED, NOT_READY, SHUTTING_DOWN)
WRITING = (*PROBLEMS, STORAGE_FULL, STORAGE_FAILED)

FeedbackId = Annotated[
    str,
    Path(
        alias="id",
        max_length=64,
        description="Id of the verdict.",
        openapi_examples={"one": {"value": ANSWER["id"]}},
    ),
]


@router.post(
    "",
    summary="Say whether a match is relevant",
    responses={
        200: json_example(ANSWER, "It is durable"),
        **problem_responses(
            MALFORMED_BODY, BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, DOCUMENT_NOT_FOUND,
            FEEDBACK_FULL, *WRITING,
        ),
    },
)  # fmt: skip
async def post_feedback(
    request: Annotated[FeedbackRequest, Body(openapi_examples=REQUESTS)],
    http: Request,
    collection: CollectionDep,
) -> FeedbackBody:
    """Keep one verdict for a query and a document; a later one replaces it.

    The same request may be repeated. Nothing changes at once: `longmatch tune` and `longmatch
    train` learn from it. Deleting a document deletes the feedback on it.
    """
    verdict = await give_feedback(collection, request.to_query(), request.match, request.grade)
    http.state.changed_ids = [verdict.id]
    return feedback_body(verdict)


@router.get(
    "",
    summary="List the feedback, or export it",
    response_model=FeedbackPage,
    responses={200: PAGE, **problem_responses(NOT_ACCEPTABLE, *PROBLEMS)},
)
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
        lines = await export_feedback(collection, cursor)
        return StreamingResponse(lines, media_type=NDJSON)
    return feedback_page(await list_feedback(collection, cursor, limit), limit)


@router.delete(
    "/{id}",
    summary="Delete a verdict",
    status_code=204,
    responses={
        204: {"description": "It is deleted"},
        **problem_responses(FEEDBACK_NOT_FOUND, *WRITING),
    },
)
async def delete_feedback(
    feedback_id: FeedbackId, http: Request, collection: CollectionDep
) -> None:
    """Delete one verdict."""
    await remove_feedback(collection, feedback_id)
    http.state.changed_ids = [feedback_id]

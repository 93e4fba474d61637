"""POST /index."""

from typing import Annotated

from fastapi import APIRouter, Body, Request
from fastapi.responses import Response

from service.api.bulk import ACCEPTED, REQUEST_BODY
from service.api.deps import Admitted, EngineDep, JSONBody
from service.api.http.idempotency import IdempotencyKey, answer_once
from service.api.http.openapi import json_example, problem_responses
from service.api.http.problems import (
    BODY_TOO_LARGE,
    ENCODING_FAILED,
    INTERNAL_ERROR,
    INVALID_INPUT,
    KEY_IN_USE,
    KEY_REUSED,
    MALFORMED_BODY,
    NOT_READY,
    OVERLOADED,
    REQUEST_TOO_LARGE,
    SHUTTING_DOWN,
    UNSUPPORTED_MEDIA_TYPE,
)
from service.api.schemas.common import IndexRequest, IndexResponse, index_response
from service.indexing import index_documents

router = APIRouter(tags=["documents"])

REQUESTS = {
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
ANSWER = {
    "indexed": 1,
    "documents": [
        {
            "id": "articles/bees",
            "receipt": {"tokens": 812, "tokens_read": 812, "blocks": 7, "blocks_left_out": 0},
            "unchanged": False,
        }
    ],
    "timings": {"tokenize": 0.9, "queue": 0.1, "encode": 43.0, "store": 6.2},
    "checkpoint": "smith-minilm-l6",
    "generation": 3,
}


@router.post(
    "/index",
    summary="Insert or replace documents",
    dependencies=[Admitted, JSONBody],
    responses={
        200: json_example(ANSWER, "All documents are durable and found by the next match"),
        202: ACCEPTED,
        **problem_responses(
            MALFORMED_BODY, BODY_TOO_LARGE, REQUEST_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE,
            INVALID_INPUT, KEY_IN_USE, KEY_REUSED, INTERNAL_ERROR, ENCODING_FAILED,
            OVERLOADED, NOT_READY, SHUTTING_DOWN,
        ),
    },
    response_model=IndexResponse,
    openapi_extra={"requestBody": REQUEST_BODY},
)  # fmt: skip
async def post_index(
    request: Annotated[IndexRequest, Body(openapi_examples=REQUESTS)],
    http: Request,
    engine: EngineDep,
    idempotency_key: IdempotencyKey = None,
) -> IndexResponse | Response:
    """Store documents: all of them or, when one is refused, none.

    A document of an id that is stored already is replaced; when its text is the same, it is not
    encoded again. Sent as `application/x-ndjson`, one document a line, any number of documents is
    taken with 202 and indexed in the background, each line for itself: see /jobs.
    """

    async def work() -> IndexResponse:
        indexed = await index_documents(engine, request.to_documents(), strict=request.strict)
        return index_response(indexed, engine.checkpoint.name)

    async def work_as_json() -> bytes:
        return (await work()).model_dump_json().encode()

    if idempotency_key is None:
        return await work()
    return await answer_once(engine, idempotency_key, await http.body(), work_as_json)

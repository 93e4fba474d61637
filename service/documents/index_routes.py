"""POST /index: JSON is indexed before the response, NDJSON in the background."""

from functools import partial
from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import Response

from service.access import client_of, own_name
from service.body import NDJSON, BodyKind
from service.deps import CollectionDep, IdempotencyKey, respond_once, to_response
from service.documents.logic import index_documents
from service.errors import UnsupportedMediaTypeError
from service.gate import LinesRoute, Rules
from service.openapi import ENCODE, Router, json_example, of_route, receipt_example
from service.problems import COMPRESSION_RATIO, KEY_IN_USE, KEY_REUSED
from service.schemas import IndexRequest, IndexResponse, index_response
from service.state.idempotency import StoredResponse
from service.uploads.logic import UploadHead, submit_upload
from service.uploads.routes import AcceptedBody, accepted_response

INDEX_PATH = "/index"

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
            "receipt": receipt_example(812, 7),
            "unchanged": False,
        }
    ],
    "timings": {"tokenize": 0.9, "queue": 0.1, "encode": 43.0, "store": 6.2},
    "checkpoint": "smith-minilm-l6",
    "generation": 3,
}


NDJSON_EXAMPLE = (
    '{"id": "articles/ants", "text": "Ants find short paths. …"}\n'
    '{"id": "articles/bees", "title": "Bees", "text": "Bees dance. …", "year": 2021}\n'
)
# How the OpenAPI document describes NDJSON requests: at the route for JSON, since one path and
# method has one description.
REQUEST_BODY: dict[str, Any] = {
    "content": {
        NDJSON: {
            "schema": {
                "type": "string",
                "minLength": 1,
                "description": "A document on each line: `id` and `text`, optionally `title` and "
                "`metadata`; other fields become metadata. `Content-Encoding: gzip` is accepted.",
            },
            "examples": {"two": {"summary": "Two documents", "value": NDJSON_EXAMPLE}},
        }
    }
}
ACCEPTED: dict[str, Any] = {
    "model": AcceptedBody,
    "description": "The lines are durable and will be indexed; Location is the job",
    "headers": {"Location": {"schema": {"type": "string"}, "description": "/jobs/{id}"}},
    "content": {
        "application/json": {
            "examples": {
                "answer": {
                    "value": {"id": "3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f", "accepted": 2, "size": 138}
                }
            }
        }
    },
}


# Must be matched before `router`, which accepts every POST of the path.
bulk_router = Router(Rules(body=BodyKind.LINES), tags=["documents"], route_class=LinesRoute)
router = Router(tags=["documents"])


@router.post(
    INDEX_PATH,
    summary="Insert or replace documents",
    responses={
        200: json_example(ANSWER, "All documents are durable, and the next match finds them"),
        202: ACCEPTED,
        **ENCODE,
        **of_route(COMPRESSION_RATIO, KEY_IN_USE, KEY_REUSED),
    },
    response_model=IndexResponse,
    openapi_extra={"requestBody": REQUEST_BODY},
)
async def post_index(
    request: Annotated[IndexRequest, Body(openapi_examples=REQUESTS)],
    http: Request,
    collection: CollectionDep,
    idempotency_key: IdempotencyKey = None,
) -> IndexResponse | Response:
    """Store documents: all of them or, if one is invalid, none.

    A document whose id is stored already is replaced; if its text is the same, it is not encoded
    again. As `application/x-ndjson`, one document on each line, any number of documents is accepted
    with 202 and indexed in the background, each line by itself: see /jobs.
    """

    http.state.changed_ids = [document.id for document in request.documents]

    async def work() -> IndexResponse:
        indexed = await index_documents(collection, request.to_documents(), strict=request.strict)
        return index_response(indexed, collection.checkpoint.name)

    async def work_as_json() -> StoredResponse:
        return StoredResponse(200, (await work()).model_dump_json().encode())

    name = own_name(http.scope, idempotency_key)
    if name is None:
        return await work()
    return await respond_once(collection, name, await http.body(), work_as_json)


@bulk_router.post(INDEX_PATH, include_in_schema=False)
async def post_lines(
    request: Request, collection: CollectionDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Receive an upload; respond when it is durable, before it is indexed."""
    answer, replayed = await submit_upload(
        collection,
        request.stream(),
        partial(accepted_response, request.state.prefix),
        partial(request.state.charge.cover, complete=True),
        UploadHead(
            gzip=_is_gzip(request),
            key=own_name(request.scope, idempotency_key),
            client=client_of(request.scope),
            announced=request.state.announced,
        ),
    )
    return to_response(answer, replayed=replayed)


def _is_gzip(request: Request) -> bool:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "x-gzip", "identity"):
        raise UnsupportedMediaTypeError("send the lines uncompressed, or as gzip")
    return encoding != "identity"

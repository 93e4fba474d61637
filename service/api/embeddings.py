"""POST /v1/embeddings, GET /v1/models and /v1/models/{model}: for clients of OpenAI's API."""

from typing import Annotated, Any

from fastapi import Body, Path
from fastapi.responses import Response

from service.api.deps import Admitted, CollectionDep, OpenCollectionDep
from service.api.http.negotiation import JSON
from service.api.http.problems import (
    BODY_TOO_LARGE,
    ENCODING_FAILED,
    INTERNAL_ERROR,
    INVALID_INPUT,
    MALFORMED_BODY,
    MODEL_NOT_FOUND,
    NOT_READY,
    OVERLOADED,
    REQUEST_TOO_LARGE,
    SHUTTING_DOWN,
    UNSUPPORTED_MEDIA_TYPE,
)
from service.api.openapi.responses import json_example, problem_responses
from service.api.openapi.router import Router
from service.api.schemas.embeddings import (
    OWNER,
    EmbeddingsRequest,
    EmbeddingsResponse,
    ModelBody,
    ModelsResponse,
    embeddings_response,
    model_body,
)
from service.embeddings import check_model, check_size
from service.encode import encode_texts
from service.threads import run_in

router = Router(prefix="/v1")

REQUESTS = {
    "one": {
        "summary": "A text",
        "value": {"input": "Ant colonies find short paths. …", "model": "longmatch"},
    },
    "several": {
        "summary": "Several, in the compact form that OpenAI's own client asks for",
        "value": {
            "input": ["Ant colonies find short paths. …", "Bees dance. …"],
            "model": "smith-minilm-l6",
            "encoding_format": "base64",
        },
    },
}
ANSWER: dict[str, Any] = {
    "object": "list",
    "data": [
        {
            "object": "embedding",
            "index": 0,
            "embedding": [0.0283, -0.0051, 0.0417],
            "receipt": {
                "tokens": 812,
                "tokens_read": 812,
                "blocks": 7,
                "blocks_left_out": 0,
                "tokens_encoded": 812,
            },
        }
    ],
    "model": "smith-minilm-l6",
    "usage": {"prompt_tokens": 812, "total_tokens": 812},
}
MODEL = {"id": "smith-minilm-l6", "object": "model", "created": 0, "owned_by": OWNER}


@router.post(
    "/embeddings",
    tags=["embeddings"],
    dependencies=[Admitted],
    summary="Get the document vectors of texts",
    response_model=EmbeddingsResponse,
    responses={
        200: json_example(ANSWER, "The vectors, in the order of the texts"),
        **problem_responses(
            MALFORMED_BODY, MODEL_NOT_FOUND, BODY_TOO_LARGE, REQUEST_TOO_LARGE,
            UNSUPPORTED_MEDIA_TYPE, INVALID_INPUT, INTERNAL_ERROR, ENCODING_FAILED, OVERLOADED,
            NOT_READY, SHUTTING_DOWN,
        ),
    },
)  # fmt: skip
async def post_embeddings(
    request: Annotated[EmbeddingsRequest, Body(openapi_examples=REQUESTS)],
    collection: CollectionDep,
) -> Response:
    """Encode each text as a whole document, to the vector that is stored when it is indexed.

    Vectors have unit norm. Two of them are comparable while the checkpoint and the adapter of the
    index stay the same: see `checkpoint.fingerprint` and `adapter.digest` at /version.
    """
    check_model(collection.engine, request.model, "#/model")
    check_size(collection, request.count, request.dimensions)
    texts = await encode_texts(collection, request.to_texts(), strict=request.strict)

    def render() -> str:
        answer = embeddings_response(texts, collection.checkpoint.name, request.encoding_format)
        return answer.model_dump_json()

    # Millions of numbers would hold up the event loop.
    return Response(await run_in(collection.engine.readers, render), media_type=JSON)


@router.get(
    "/models",
    tags=["operations"],
    summary="List the models for /v1/embeddings",
    responses={
        200: json_example({"object": "list", "data": [MODEL]}, "The served checkpoint"),
        **problem_responses(INTERNAL_ERROR, NOT_READY),
    },
)
async def get_models(collection: OpenCollectionDep) -> ModelsResponse:
    """Return the served checkpoint; its alias `longmatch` is not listed."""
    return ModelsResponse(data=[model_body(collection.checkpoint.name)])


@router.get(
    "/models/{model:path}",
    tags=["operations"],
    summary="Get a model",
    responses={
        200: json_example(MODEL, "The served checkpoint"),
        **problem_responses(MODEL_NOT_FOUND, INVALID_INPUT, INTERNAL_ERROR, NOT_READY),
    },
)
async def get_model(
    model: Annotated[
        str,
        Path(
            description="Name of the checkpoint, or `longmatch`.",
            openapi_examples={"alias": {"value": "longmatch"}},
        ),
    ],
    collection: OpenCollectionDep,
) -> ModelBody:
    """Return the served checkpoint, under its own name, if this is its name or its alias."""
    check_model(collection.engine, model)
    return model_body(collection.checkpoint.name)

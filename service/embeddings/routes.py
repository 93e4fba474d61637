"""POST /v1/embeddings, GET /v1/models and /v1/models/{model}: in the shape of OpenAI's API."""

from typing import Annotated

from fastapi import Body, Path
from fastapi.responses import Response

from service.body import JSON
from service.deps import CollectionDep, OpenCollectionDep
from service.embeddings import schemas
from service.encode import encode_texts
from service.engine import Collection
from service.errors import FieldError, InvalidInputError, ModelNotFoundError
from service.gate import declare
from service.openapi import ENCODE, READ, Router
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


@router.post(
    "/embeddings",
    tags=["embeddings"],
    summary="Get the document vectors of texts",
    response_model=schemas.EmbeddingsResponse,
    responses=ENCODE({200: "The vectors, in the order of the texts"}, "model-not-found"),
)
@declare(scope="read")
async def post_embeddings(
    request: Annotated[schemas.EmbeddingsRequest, Body(openapi_examples=REQUESTS)],
    collection: CollectionDep,
) -> Response:
    """Encode each text as a whole document, to the vector that is stored when it is indexed.

    Vectors have unit norm. Two of them are comparable while the checkpoint stays the
    same: see `checkpoint.fingerprint` at /version.
    """
    _check_model(collection, request.model, "#/model")
    given = request.to_texts()
    _check_size(collection, len(given), request.dimensions)
    texts = await encode_texts(collection, given, strict=request.strict)

    def render() -> str:
        name, encoding = collection.checkpoint.name, request.encoding_format
        return schemas.embeddings_response(texts, name, encoding).model_dump_json()

    # Millions of numbers would hold up the event loop.
    return Response(await run_in(collection.engine.readers, render), media_type=JSON)


@router.get(
    "/models",
    tags=["operations"],
    summary="List the models for /v1/embeddings",
    responses=READ({200: "The served checkpoint"}),
)
@declare(cost="nothing")
async def get_models(collection: OpenCollectionDep) -> schemas.ModelsResponse:
    """Return the served checkpoint; its alias `longmatch` is not listed."""
    return schemas.ModelsResponse(data=[schemas.model_body(collection.checkpoint.name)])


@router.get(
    "/models/{model:path}",
    tags=["operations"],
    summary="Get a model",
    responses=READ({200: "The served checkpoint"}, "model-not-found"),
)
@declare(cost="nothing")
async def get_model(
    model: Annotated[
        str,
        Path(
            description="Name of the checkpoint, or `longmatch`.",
            openapi_examples={"alias": {"value": "longmatch"}},
        ),
    ],
    collection: OpenCollectionDep,
) -> schemas.ModelBody:
    """Return the served checkpoint, under its own name, if this is its name or its alias."""
    _check_model(collection, model)
    return schemas.model_body(collection.checkpoint.name)


def _check_model(collection: Collection, name: str, pointer: str | None = None) -> None:
    """Require the name of the served checkpoint or its alias; the pointer is that of the name."""
    served = collection.engine.checkpoint.name
    if name not in (served, schemas.ALIAS):
        raise ModelNotFoundError(name, served, pointer)


def _check_size(collection: Collection, texts: int, dimensions: int | None) -> None:
    """Refuse what is too much, or cannot be given, before anything is made of the texts."""
    errors, dimension, most = [], collection.space.dimension, schemas.MAX_INPUTS
    if texts > most:
        errors.append(FieldError("#/input", f"has more than {most} texts", most))
    if dimensions not in (None, dimension):
        detail = f"must be {dimension}: the vectors of this checkpoint cannot be shortened"
        errors.append(FieldError("#/dimensions", detail, dimension))
    if errors:
        raise InvalidInputError(errors)

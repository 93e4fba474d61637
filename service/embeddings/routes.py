"""POST /v1/embeddings, GET /v1/models and /v1/models/{model}: in the shape of OpenAI's API."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Body, Path
from fastapi.responses import Response
from pydantic import BaseModel, Field, PlainValidator, TypeAdapter, WithJsonSchema

from encoder.arrays import Float32
from service.body import JSON
from service.deps import CollectionDep, OpenCollectionDep
from service.encode import EncodedText, RequestText, encode_texts
from service.engine import Collection
from service.errors import FieldError, InvalidInputError, ModelNotFoundError
from service.gate import declare
from service.openapi import ENCODE, READ, Router
from service.schemas import (
    BodyModel,
    Characters,
    ReceiptBody,
    Strict,
    WholeText,
    optional,
    whole_characters,
)
from service.threads import run_in

EncodingFormat = Literal["float", "base64"]
NAME = "longmatch"  # of the owner; as a model, the served checkpoint, whatever its name
MAX_INPUTS = 2048  # texts of one request, as in OpenAI's API
_WHOLE_TEXTS = TypeAdapter(list[WholeText])


def _texts(value: object) -> object:
    """Require a text or a list of texts."""
    if isinstance(value, str):
        return whole_characters(value)
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of texts")
    if not value:
        raise ValueError("must have at least one text")
    if any(isinstance(text, int | list) for text in value):
        raise ValueError("must be text: token ids are those of another tokenizer")
    if not all(isinstance(text, str) for text in value):
        raise ValueError("must be a text or a list of texts")
    return _WHOLE_TEXTS.validate_python(value)


_TEXT = {"type": "string", "pattern": r"\S"}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_INPUTS}
InputField = Annotated[Any, PlainValidator(_texts), WithJsonSchema({"anyOf": [_TEXT, _TEXTS]})]


class EmbeddingsRequest(BodyModel):
    """Texts to encode."""

    input: InputField = Field(
        description="A text, or a list of at most `max_embedding_inputs` (see /version); each a "
        "whole document. Token ids are refused."
    )
    model: Characters = Field(description="Name of the checkpoint, or `longmatch`.")
    encoding_format: EncodingFormat | None = optional(
        "`float`, the default, or `base64`: of the vector as float32, little-endian."
    )
    dimensions: int | None = optional("Only the dimension of the vectors.")
    user: str | None = optional("Ignored.")
    strict: Strict = False

    def to_texts(self) -> list[RequestText]:
        """Return the texts, each with the JSON pointer to it."""
        if isinstance(self.input, str):
            return [RequestText("#/input", self.input)]
        return [RequestText(f"#/input/{n}", text) for n, text in enumerate(self.input)]


class EmbeddingBody(BaseModel):
    """The document vector of one text."""

    object: str = Field(default="embedding", description="Always `embedding`.")
    index: int = Field(description="Position of the text in `input`.")
    embedding: list[float] | str = Field(
        description="The vector, of unit norm: numbers, or base64 of them."
    )
    receipt: ReceiptBody = Field(description="What was read of the text; not in OpenAI's API.")


class UsageBody(BaseModel):
    """How many tokens were read."""

    prompt_tokens: int = Field(description="Of all texts: `tokens_read` of their receipts.")
    total_tokens: int = Field(description="The same.")


class EmbeddingsResponse(BaseModel):
    """The document vectors of the texts, in their order."""

    object: str = Field(default="list", description="Always `list`.")
    data: list[EmbeddingBody]
    model: str = Field(description="Name of the checkpoint.")
    usage: UsageBody


class ModelBody(BaseModel):
    """The served checkpoint."""

    id: str = Field(description="Its name.")
    object: str = Field(default="model", description="Always `model`.")
    created: int = Field(
        default=0, description="Always 0: a checkpoint does not say when it was made."
    )
    owned_by: str = NAME


class ModelsResponse(BaseModel):
    """The served checkpoints: one."""

    object: str = Field(default="list", description="Always `list`.")
    data: list[ModelBody]


def _embeddings_json(
    texts: Sequence[EncodedText], model: str, encoding: EncodingFormat | None
) -> str:
    tokens = sum(text.receipt.tokens_read for text in texts)
    return EmbeddingsResponse(
        data=[
            EmbeddingBody(
                index=index,
                embedding=_base64(text.vector) if encoding == "base64" else text.vector.tolist(),
                receipt=ReceiptBody.model_validate(text.receipt),
            )
            for index, text in enumerate(texts)
        ],
        model=model,
        usage=UsageBody(prompt_tokens=tokens, total_tokens=tokens),
    ).model_dump_json()


def _base64(vector: Float32) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


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
    response_model=EmbeddingsResponse,
    responses=ENCODE({200: "The vectors, in the order of the texts"}, "model-not-found"),
)
@declare(scope="read")
async def post_embeddings(
    request: Annotated[EmbeddingsRequest, Body(openapi_examples=REQUESTS)],
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

    # In another thread: millions of numbers would hold up the event loop.
    body = await run_in(
        collection.engine.readers,
        _embeddings_json,
        texts,
        collection.checkpoint.name,
        request.encoding_format,
    )
    return Response(body, media_type=JSON)


@router.get(
    "/models",
    tags=["operations"],
    summary="List the models for /v1/embeddings",
    responses=READ({200: "The served checkpoint"}),
)
@declare(cost="nothing")
async def get_models(collection: OpenCollectionDep) -> ModelsResponse:
    """Return the served checkpoint; its alias `longmatch` is not listed."""
    return ModelsResponse(data=[ModelBody(id=collection.checkpoint.name)])


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
) -> ModelBody:
    """Return the served checkpoint, under its own name, if this is its name or its alias."""
    _check_model(collection, model)
    return ModelBody(id=collection.checkpoint.name)


def _check_model(collection: Collection, name: str, pointer: str | None = None) -> None:
    """Require the name of the served checkpoint or its alias; the pointer is that of the name."""
    served = collection.engine.encoder.checkpoint.name
    if name not in (served, NAME):
        raise ModelNotFoundError(name, served, pointer)


def _check_size(collection: Collection, texts: int, dimensions: int | None) -> None:
    """Refuse what is too much, or cannot be given, before anything is made of the texts."""
    errors, dimension, most = [], collection.space.dimension, MAX_INPUTS
    if texts > most:
        errors.append(FieldError("#/input", f"has more than {most} texts", most))
    if dimensions not in (None, dimension):
        detail = f"must be {dimension}: the vectors of this checkpoint cannot be shortened"
        errors.append(FieldError("#/dimensions", detail, dimension))
    if errors:
        raise InvalidInputError(errors)

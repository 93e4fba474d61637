"""POST /v1/embeddings: texts -> the document vectors that would be stored of them."""

from collections.abc import Sequence

from service.encode import EncodedText, RequestText, encode_texts
from service.engine import Engine
from service.errors import FieldError, InvalidInputError, ModelNotFoundError

ALIAS = "longmatch"  # the served checkpoint, whatever its name


def check_model(engine: Engine, name: str, pointer: str | None = None) -> None:
    """Require that a name is that of the served checkpoint, or its alias.

    Args:
        engine: with the checkpoint.
        name: from the request.
        pointer: JSON pointer to it, if it is in a body.

    Raises:
        ModelNotFoundError: it is neither.
    """
    served = engine.checkpoint.name
    if name not in (served, ALIAS):
        raise ModelNotFoundError(name, served, pointer)


async def embed(
    engine: Engine, texts: Sequence[RequestText], *, dimensions: int | None, strict: bool
) -> list[EncodedText]:
    """Encode texts as documents: with the adapter of the corpus, if the index has one.

    Args:
        engine: that encodes.
        texts: at most `max_embedding_inputs`.
        dimensions: that the vectors must have; None for what they have.
        strict: refuse a text that is too long rather than leave a part of it out.

    Raises:
        InvalidInputError: too many texts, other dimensions than those of the vectors, or a text is
            refused.
        ServiceError: the other errors of `encode_texts`.
    """
    errors = []
    limit, own = engine.settings.max_embedding_inputs, engine.encoder.dimension
    if len(texts) > limit:
        errors.append(FieldError("#/input", f"has more than {limit} texts", limit))
    if dimensions not in (None, own):
        detail = f"must be {own}: the vectors of this checkpoint cannot be shortened"
        errors.append(FieldError("#/dimensions", detail, own))
    if errors:
        raise InvalidInputError(errors)
    return await encode_texts(engine, texts, strict=strict)

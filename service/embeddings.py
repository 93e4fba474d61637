"""POST /v1/embeddings: what is asked of the encoder, before `service.encode` encodes it."""

from service.engine import Collection, Engine
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


def check_size(collection: Collection, texts: int, dimensions: int | None) -> None:
    """Refuse what is too much, or cannot be given, before anything is made of the texts.

    Args:
        collection: whose vectors are asked for.
        texts: how many.
        dimensions: that the vectors must have; None for what they have.

    Raises:
        InvalidInputError: more texts than `max_embedding_inputs`, or other dimensions than those
            of the vectors.
    """
    errors = []
    limit, own = collection.engine.settings.max_embedding_inputs, collection.space.dimension
    if texts > limit:
        errors.append(FieldError("#/input", f"has more than {limit} texts", limit))
    if dimensions not in (None, own):
        detail = f"must be {own}: the vectors of this checkpoint cannot be shortened"
        errors.append(FieldError("#/dimensions", detail, own))
    if errors:
        raise InvalidInputError(errors)

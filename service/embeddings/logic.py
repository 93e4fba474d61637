"""What may be asked of /v1: which model, how many texts, which dimensions."""

from service.engine import Collection, Engine
from service.errors import FieldError, InvalidInputError, ModelNotFoundError

ALIAS = "longmatch"  # the served checkpoint, whatever its name
MAX_INPUTS = 2048  # texts of one request, as in OpenAI's API


def check_model(engine: Engine, name: str, pointer: str | None = None) -> None:
    """Require the name of the served checkpoint or its alias, or raise ModelNotFoundError.

    The pointer is the JSON pointer to the name, if it is in a body.
    """
    served = engine.checkpoint.name
    if name not in (served, ALIAS):
        raise ModelNotFoundError(name, served, pointer)


def check_size(collection: Collection, texts: int, dimensions: int | None) -> None:
    """Refuse what is too much, or cannot be given, before anything is made of the texts.

    Raises:
        InvalidInputError: more texts than `MAX_INPUTS`, or other dimensions than those
            of the vectors.
    """
    errors = []
    dimension = collection.space.dimension
    if texts > MAX_INPUTS:
        errors.append(FieldError("#/input", f"has more than {MAX_INPUTS} texts", MAX_INPUTS))
    if dimensions not in (None, dimension):
        detail = f"must be {dimension}: the vectors of this checkpoint cannot be shortened"
        errors.append(FieldError("#/dimensions", detail, dimension))
    if errors:
        raise InvalidInputError(errors)

"""The kinds of fields that requests and answers are made of."""

import json
import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
)

from index.document import MAX_ID_CHARACTERS, MAX_TITLE_CHARACTERS

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _whole_characters(text: object) -> object:
    if isinstance(text, str) and _LONE_SURROGATE.search(text):
        raise ValueError("has a lone surrogate, which is no character")
    return text


def _sendable(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        _whole_characters(json.dumps(metadata, ensure_ascii=False, allow_nan=False))
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    return metadata


def _not_nullable(schema: dict[str, Any]) -> None:
    """Describe a field that may be left out, but not be null, as what it is when it is there."""
    schema.pop("default")
    given = [kind for kind in schema.pop("anyOf") if kind.get("type") != "null"]
    schema.update(given[0] if len(given) == 1 else {"anyOf": given})


def nullable(description: str) -> Any:
    """Describe a field of an answer that is always there and may be null."""

    def describe(schema: dict[str, Any]) -> None:
        given = next(kind for kind in schema.pop("anyOf") if kind.get("type") != "null")
        schema.update(given, nullable=True)  # OpenAPI 3.0 knows no type "null"

    return Field(description=description, json_schema_extra=describe)


def or_a_number(schema: dict[str, Any]) -> None:
    """Describe a field that may be left out, and may be a whole number instead of an object."""
    _not_nullable(schema)
    given = {name: schema.pop(name) for name in ("$ref", "allOf") if name in schema}
    schema["anyOf"] = [{"type": "integer", "minimum": 1}, given]


_WHOLE = BeforeValidator(_whole_characters)
Characters = Annotated[str, _WHOLE]
DocumentId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS), _WHOLE]
Title = Annotated[str, Field(max_length=MAX_TITLE_CHARACTERS), _WHOLE]
Cosine = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_sendable)]


def optional(description: str) -> Any:
    """Describe a field that may be left out."""
    return Field(default=None, description=description, json_schema_extra=_not_nullable)


class Body(BaseModel):
    """A request body: no unknown field, no value of another type, no null."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must not be null")
        return value

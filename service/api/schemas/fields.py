"""The kinds of fields of requests and responses, and the parameters of pages."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
)
from pydantic_core import PydanticCustomError

from index.document import (
    MAX_ID_CHARACTERS,
    MAX_METADATA_LEVELS,
    MAX_TITLE_CHARACTERS,
    TOO_DEEP,
    is_too_deep,
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def whole_characters(text: object) -> object:
    """Return a value; ValueError for a text with a lone surrogate, which UTF-8 has not."""
    if isinstance(text, str) and _LONE_SURROGATE.search(text):
        raise ValueError("has a lone surrogate, which is not a character")
    return text


def _shallow(metadata: object) -> object:
    if isinstance(metadata, dict) and is_too_deep(metadata):
        raise PydanticCustomError("metadata_levels", TOO_DEEP, {"le": MAX_METADATA_LEVELS})
    return metadata


def _sendable(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    whole_characters(json.dumps(metadata, ensure_ascii=False, allow_nan=False))
    return metadata


def _not_nullable(schema: dict[str, Any]) -> None:
    """Describe a field that may be omitted, but not null, by the type that it has when present."""
    schema.pop("default")
    given = [kind for kind in schema.pop("anyOf") if kind.get("type") != "null"]
    schema.update(given[0] if len(given) == 1 else {"anyOf": given})


def nullable(description: str) -> Any:
    """Describe a field of a response that is always present and may be null."""

    def describe(schema: dict[str, Any]) -> None:
        given = next(kind for kind in schema.pop("anyOf") if kind.get("type") != "null")
        schema.update(given, nullable=True)  # OpenAPI 3.0 has no type "null"

    return Field(description=description, json_schema_extra=describe)


def or_a_number(schema: dict[str, Any]) -> None:
    """Describe a field that may be omitted, and may be an integer instead of an object."""
    _not_nullable(schema)
    given = {name: schema.pop(name) for name in ("$ref", "allOf") if name in schema}
    schema["anyOf"] = [{"type": "integer", "minimum": 1}, given]


def exclusive(
    *fields: str,
    title_of: str = "",
    needs: Mapping[str, str] | None = None,
    without: Mapping[str, Sequence[str]] | None = None,
) -> ConfigDict:
    """Describe a body that has exactly one of some fields.

    Args:
        fields: one of which it has.
        title_of: the one that a title is of.
        needs: other fields, and the one that each is allowed with.
        without: fields, and those that are not allowed with each.
    """
    described: dict[str, Any] = {"oneOf": [{"required": [field]} for field in fields]}
    allowed = {**({"title": title_of} if title_of else {}), **(needs or {})}
    refused = [
        {"required": [field, name]}
        for name, companion in allowed.items()
        for field in fields
        if field != companion
    ]
    refused += [
        {"required": [field, name]} for field, names in (without or {}).items() for name in names
    ]
    if refused:
        described["not"] = {"anyOf": refused}
    return ConfigDict(json_schema_extra=described)


_WHOLE = BeforeValidator(whole_characters)
WholeText = Annotated[str, _WHOLE]
# The tokenizer decides whether a text is empty, and needs a character that is not a space.
Characters = Annotated[str, _WHOLE, Field(json_schema_extra={"pattern": r"\S"})]
DocumentId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS), _WHOLE]
Title = Annotated[str, Field(max_length=MAX_TITLE_CHARACTERS), _WHOLE]
Cosine = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Strict = Annotated[
    bool,
    Field(
        description="Refuse with 422, naming tokens and limit, a text that is too long to be read "
        "whole, rather than read its beginning."
    ),
]
Metadata = Annotated[dict[str, JsonValue], BeforeValidator(_shallow), AfterValidator(_sendable)]


def optional(description: str) -> Any:
    """Describe a field that may be omitted."""
    return Field(default=None, description=description, json_schema_extra=_not_nullable)


def optional_or_null(description: str) -> Any:
    """Describe a field that may be omitted, which null says, too."""

    def describe(schema: dict[str, Any]) -> None:
        _not_nullable(schema)
        schema["nullable"] = True  # OpenAPI 3.0 has no type "null"
        if "enum" in schema:  # names every value that is allowed
            schema["enum"] = [*schema["enum"], None]

    return Field(default=None, description=description, json_schema_extra=describe)


class BodyModel(BaseModel):
    """A request body: no unknown fields, no values of other types, no nulls."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must not be null")
        return value


MAX_PAGE, DEFAULT_PAGE = 1_000, 100
_VERSION = 1
# Except those that stand for the bytes of a damaged id.
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_INVALID = "is not a cursor of this service"


def write_cursor(last: str) -> str:
    """Return the cursor of the page after the document of this id."""
    content = json.dumps([_VERSION, last]).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the id that `write_cursor` made a cursor of; ValueError if it made none of it."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        content: Any = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as error:
        raise ValueError(_INVALID) from error
    match content:
        case [int(version), str(last)] if version == _VERSION and not _SURROGATE.search(last):
            return last
    raise ValueError(_INVALID)


Cursor = Annotated[
    str,
    AfterValidator(read_cursor),
    Query(
        max_length=8_192,
        description="`next_cursor` of the previous page; by default, the first page.",
        openapi_examples={"some": {"value": "WzEsICJhcnRpY2xlcy9iZWVzIl0"}},
    ),
]

PageSize = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_PAGE,
        description="Documents on a page.",
        openapi_examples={"some": {"value": DEFAULT_PAGE}},
    ),
]

"""Bodies, kinds of fields and parameters that several features share.

Limits that are settings are checked later, not here.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from index.document import (
    MAX_ID_CHARACTERS,
    MAX_METADATA_LEVELS,
    MAX_TITLE_CHARACTERS,
    TOO_DEEP,
    is_too_deep,
)
from index.search.records import Bounds
from service.encode import Query, RequestText, StoredQuery
from service.metrics import Stage
from service.telemetry import hides_stages

T = TypeVar("T")
_NULL = {"type": "null"}
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


def nullable(description: str) -> Any:
    """Describe a field of a response that is always present and may be null."""
    return Field(description=description)


def optional(description: str) -> Any:
    """Describe a field that may be left out."""
    return Field(default=None, description=description)


def _given(*fields: str) -> dict[str, Any]:
    """Describe a body that has some fields, none of them null."""
    return {"required": list(fields), "properties": {name: {"not": _NULL} for name in fields}}


def exactly_one(**given: object) -> None:
    """Reject a body that does not have exactly one of some fields."""
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"give exactly one of {', '.join(given)}")


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


_OF_FIELDS = ("title", "description", "default")


class BodyModel(BaseModel):
    """A request body: no unknown fields, and no values of other types.

    Null means that a field is not given, and 3.0 is an integer, as in JSON Schema.

    Attributes:
        one_of: fields of which it has exactly one.
        apart: fields, and those that it does not have together with each.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    null_is_absent: ClassVar[bool] = True
    one_of: ClassVar[Sequence[str]] = ()
    apart: ClassVar[Mapping[str, Sequence[str]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _as_in_json(cls, given: object) -> object:
        if not isinstance(given, dict) or not cls.null_is_absent:
            return given
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in given.items()
            if value is not None or name not in cls.model_fields
        }

    @model_validator(mode="after")
    def _combined(self) -> Self:
        if self.one_of:
            exactly_one(**{name: getattr(self, name) for name in self.one_of})
        for name, names in self.apart.items():
            for other in names if getattr(self, name) is not None else ():
                if getattr(self, other) is not None:
                    raise ValueError(f"give {name} or {other}, not both")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe which fields go together, and that those that may be left out may be null."""
        schema = handler(core)
        described = handler.resolve_ref_schema(schema)
        required = described.get("required", ())
        for name, form in described.get("properties", {}).items():
            if name not in required and _NULL not in form.get("anyOf", ()):
                kept = {key: form.pop(key) for key in _OF_FIELDS if key in form}
                several = form["anyOf"] if form.keys() == {"anyOf"} else [form]
                described["properties"][name] = {"anyOf": [*several, _NULL], **kept}
        if cls.one_of:
            described["oneOf"] = [_given(name) for name in cls.one_of]
        if cls.apart:
            pairs = [(name, other) for name, names in cls.apart.items() for other in names]
            described["not"] = {"anyOf": [_given(*pair) for pair in pairs]}
        return schema


def next_cursor(page: Sequence[T], limit: int, id_of: Callable[[T], str]) -> str | None:
    """Return the cursor of the page after this one of `limit` entries; None if it is the last."""
    if len(page) < limit:
        return None
    return base64.urlsafe_b64encode(id_of(page[-1]).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the id that `next_cursor` made a cursor of; ValueError if it made none of it."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise ValueError("is not a cursor of this service") from error


STAGE_TIMES = "Milliseconds of each stage; empty for an API key that is bound to a collection."


class QueryBody(BodyModel):
    """A text, or a stored document."""

    one_of: ClassVar[Sequence[str]] = ("text", "id")
    apart: ClassVar[Mapping[str, Sequence[str]]] = {"title": ("id",)}  # that has a title itself

    text: Characters | None = optional("Text of a document.")
    title: Title | None = optional(
        "Title of the text, if it has one: a document of this title, or one that names it, is "
        "nearer in lexical and hybrid mode."
    )
    id: DocumentId | None = optional("Id of a stored document, which is not encoded again.")

    def to_query(self, parent: str) -> Query:
        """Return the text or the id with the pointer to it, given the pointer to this body."""
        if self.text is not None:
            return RequestText(f"{parent}/text", self.text, self.title or "")
        return StoredQuery(f"{parent}/id", str(self.id))


class BoundsBody(BodyModel):
    """Bounds of the scores of documents."""

    min_score: Cosine | None = optional("No document whose score is under this.")
    min_probability: Share | None = optional(
        "No document under this probability; refused where scores have none."
    )
    max_false_positive_rate: Share | None = optional(
        "No document whose score a larger share of random pairs of the corpus reaches; refused "
        "where that was not measured: fewer than 100 documents, or not yet."
    )

    @property
    def bounds(self) -> Bounds:
        """The bounds, as a search takes them."""
        return Bounds(self.min_score, self.min_probability, self.max_false_positive_rate)


class ReceiptBody(BaseModel, from_attributes=True):
    """How much of a document was read and how much was left out."""

    tokens: int = Field(description="Tokens of the whole text.")
    tokens_read: int = Field(description="Tokens whose words were counted.")
    blocks: int = Field(description="Sentence blocks of the tokens that were read.")
    blocks_left_out: int = Field(description="Sentence blocks beyond what the checkpoint reads.")
    tokens_encoded: int = Field(
        description="Tokens that the Transformer encoded: all that were read, or those of the "
        "selected sentence blocks."
    )
    payload_characters: int = Field(
        description="Characters that are no text and were not read: data URIs, runs of base64 and "
        "hexadecimal, minified code."
    )


class Answer(BaseModel):
    """The part of every response that used the index which says how it was made."""

    timings: dict[str, float] = Field(description=STAGE_TIMES)
    checkpoint: str = Field(description="Name of the checkpoint that computed the vectors.")
    generation: int = Field(description="Generation of the index.")


def milliseconds(seconds: Mapping[Stage, float]) -> dict[str, float]:
    """Convert the seconds of stages to milliseconds, rounded to the microsecond.

    There are none for an API key that is bound to a collection.
    """
    if hides_stages.get():
        return {}
    return {stage: round(duration * 1000, 3) for stage, duration in seconds.items()}

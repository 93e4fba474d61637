"""The filter of a request: its form, its limits, and the filter of the store that it becomes."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from index.store import filters
from service.schemas import BodyModel, WholeText, exactly_one, optional, whole_characters

MAX_DEPTH = 8
MAX_CONDITIONS = 64
MAX_VALUES = 1_000
MAX_EXCLUDED = 1_000

_INT64 = range(-(2**63), 2**63)
_TEXT = {"type": "string", "maxLength": filters.MAX_VALUE_CHARACTERS}


def _checked_scalar(value: object) -> filters.Scalar:
    match value:
        case bool():
            return value
        case str():
            if len(value) > filters.MAX_VALUE_CHARACTERS:
                raise _over("is longer than {max_length} characters", filters.MAX_VALUE_CHARACTERS)
            whole_characters(value)
            return value
        case int() if value in _INT64:
            return value
        case float() if math.isfinite(value):
            return value
        case int() | float():
            raise ValueError("is a number too large to be compared")
    raise ValueError("must be a string, a number, true or false")


def _checked_bound(value: object) -> filters.Scalar:
    if isinstance(value, bool):
        raise ValueError("must be a string or a number")
    return _checked_scalar(value)


def _field_pointer(field: str) -> str:
    """Return a field as a JSON Pointer; without a leading slash it is a name at the top level."""
    if not field.startswith("/"):
        field = filters.pointer([field])
    if len(field) > filters.MAX_FIELD_CHARACTERS:
        raise _over("is longer than {max_length} characters", filters.MAX_FIELD_CHARACTERS)
    if field.count("/") > filters.MAX_NESTING:
        raise _over("is more than {max_length} levels deep", filters.MAX_NESTING)
    if "~" in field.replace("~0", "").replace("~1", ""):
        raise ValueError("is not a JSON Pointer: ~ is written ~0, and / within a name ~1")
    return field


def _over(message: str, limit: int) -> PydanticCustomError:
    return PydanticCustomError("filter_limit", message, {"max_length": limit})


FieldPointer = Annotated[WholeText, Field(min_length=1), AfterValidator(_field_pointer)]
ScalarField = Annotated[
    Any,
    PlainValidator(_checked_scalar),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}]}),
]
BoundField = Annotated[
    Any, PlainValidator(_checked_bound), WithJsonSchema({"anyOf": [_TEXT, {"type": "number"}]})
]


_BOUNDS = ("gte", "gt", "lte", "lt")
_ON_A_FIELD = ("equal", "in", "range", "exists")
_OF_OTHERS = ("and", "or", "not")


def _describe_range(schema: dict[str, Any]) -> None:
    """Say that there is a bound at least, and that bounds are of one type."""
    bounds = schema.pop("properties")
    del schema["additionalProperties"], schema["type"]
    schema["anyOf"] = [
        {
            "type": "object",
            "properties": {name: bounds[name] | {"anyOf": [given]} for name in _BOUNDS},
            "minProperties": 1,
            "additionalProperties": False,
        }
        for given in (_TEXT, {"type": "number"})
    ]


def _describe_filter(schema: dict[str, Any]) -> None:
    """Say that a filter is one condition on a field, or one combination without a field."""
    fields = schema.pop("properties")
    del schema["additionalProperties"], schema["type"]
    forms = [*(("field", name) for name in _ON_A_FIELD), *((name,) for name in _OF_OTHERS)]
    schema["oneOf"] = [
        {
            "type": "object",
            "properties": {name: _without_null(fields[name]) for name in form},
            "required": list(form),
            "additionalProperties": False,
        }
        for form in forms
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    given = [form for form in schema["anyOf"] if form != {"type": "null"}]
    rest = {name: part for name, part in schema.items() if name != "anyOf"}
    return rest | (given[0] if len(given) == 1 else {"anyOf": given})


class _Condition(BodyModel):
    """A part of a filter, in which null is refused: without it, the filter would hold for more."""

    null_is_absent = False

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must not be null")
        return value


class RangeBody(_Condition):
    """The bounds of a range, both numbers or both strings; strings compare by code point."""

    model_config = ConfigDict(json_schema_extra=_describe_range)
    apart: ClassVar[Mapping[str, Sequence[str]]] = {"gte": ("gt",), "lte": ("lt",)}

    gte: BoundField | None = optional("At least this.")
    gt: BoundField | None = optional("More than this.")
    lte: BoundField | None = optional("At most this.")
    lt: BoundField | None = optional("Less than this.")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        self.to_range("")
        return self

    def to_range(self, field: str) -> filters.Range:
        """Return the condition on a field; ValueError if the bounds are none of a range."""
        return filters.Range(field, _bound(self.gt, self.gte), _bound(self.lt, self.lte))


def _bound(beyond: filters.Scalar | None, at: filters.Scalar | None) -> filters.Bound | None:
    if beyond is not None:
        return filters.Bound(beyond, inclusive=False)
    return None if at is None else filters.Bound(at, inclusive=True)


class FilterBody(_Condition):
    """One condition on a `field`, or conditions combined by `and`, `or`, `not`.

    A field that is missing or null, or whose value has another type, satisfies no `equal`, `in` or
    `range`. A list satisfies a condition if one of its elements does.
    """

    model_config = ConfigDict(
        alias_generator=lambda name: name.rstrip("_"), json_schema_extra=_describe_filter
    )

    field: FieldPointer | None = optional(
        "Name of a field of the metadata, or the JSON Pointer of a nested one: `/author/name`."
    )
    equal: ScalarField | None = optional("It has this value.")
    in_: Annotated[list[ScalarField], Field(min_length=1)] | None = optional(
        "It has one of these values."
    )
    range: RangeBody | None = optional("It has a value within these bounds.")
    exists: bool | None = optional("It exists or, with false, it does not.")
    and_: Annotated[list["FilterBody"], Field(min_length=1)] | None = optional("All of these hold.")
    or_: Annotated[list["FilterBody"], Field(min_length=1)] | None = optional(
        "At least one of these holds."
    )
    not_: "FilterBody | None" = optional("This does not hold.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        conditions = {
            "equal": self.equal,
            "in": self.in_,
            "range": self.range,
            "exists": self.exists,
        }
        exactly_one(**conditions, **{"and": self.and_, "or": self.or_, "not": self.not_})
        joined = all(value is None for value in conditions.values())
        if joined and self.field is not None:
            raise ValueError("and, or and not take no field")
        if not joined and self.field is None:
            raise ValueError("a condition needs a field")
        return self

    def to_filter(self) -> filters.Filter:
        """Return the filter to evaluate."""
        if self.not_ is not None:
            return filters.Not(self.not_.to_filter())
        if (several := self.and_ or self.or_) is not None:
            combined = filters.And if self.and_ else filters.Or
            return combined(tuple(part.to_filter() for part in several))
        field = str(self.field)
        if self.range is not None:
            return self.range.to_range(field)
        if self.exists is not None:
            return filters.Exists(field) if self.exists else filters.Not(filters.Exists(field))
        values: list[Any] = self.in_ or [self.equal]
        return filters.OneOf(field, tuple(values))

    def as_json(self) -> dict[str, Any]:
        """Return what was given, with fields as JSON Pointers."""
        return self.model_dump(by_alias=True, exclude_none=True)


def _within_limits(value: object) -> object:
    """Reject a filter that is too deep or too large, before it is validated recursively."""
    conditions = values = 0
    todo = [(value, 1)]
    while todo:
        part, depth = todo.pop()
        if not isinstance(part, dict):
            continue
        if depth > MAX_DEPTH:
            raise _over("is nested more than {max_length} levels deep", MAX_DEPTH)
        conditions += 1
        values += len(part["in"]) if isinstance(part.get("in"), list) else 1
        todo += [(child, depth + 1) for child in _parts(part)]
        if conditions > MAX_CONDITIONS:
            raise _over("has more than {max_length} conditions", MAX_CONDITIONS)
        if values > MAX_VALUES:
            raise _over("has more than {max_length} values", MAX_VALUES)
    return value


def _parts(part: dict[Any, Any]) -> list[object]:
    lists = [part[name] for name in ("and", "or") if isinstance(part.get(name), list)]
    found = [child for children in lists for child in children[: MAX_CONDITIONS + 1]]
    return [*found, part["not"]] if "not" in part else found


FilterField = Annotated[FilterBody, BeforeValidator(_within_limits)]
_FILTER: TypeAdapter[FilterBody] = TypeAdapter(FilterField)


def parse_filter(text: str) -> filters.Filter:
    """Return the filter that a text has as JSON, or raise ValueError, which says where and why."""
    try:
        return _FILTER.validate_json(text).to_filter()
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise ValueError(f"is not JSON: {first['ctx']['error']}") from error
        place = "".join(f"/{part}" for part in first["loc"])
        detail = first.get("ctx", {}).get("error", first["msg"])
        raise ValueError(f"#{place} {detail}") from error

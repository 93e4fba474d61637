"""Metadata filters: conditions on the documents that a search may find.

A field is the JSON Pointer (RFC 6901) of a value in the metadata; the elements of a list have the
field of the list. Null counts as missing. A field that is missing, or whose value has another type,
equals no value and is in no range, so `Not` of such a condition holds for documents without the
field.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from index.store.metadata import MetadataValue, Scalar, kind_of, metadata_values, prefix


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values; 1 and 1.0 are equal."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range: a number or a text, `inclusive` or not."""

    value: Scalar
    inclusive: bool


@dataclass(frozen=True, slots=True)
class Range:
    """The field has a value within the bounds; texts are compared by code points.

    Raises:
        ValueError: there is no bound, one is neither number nor text, or they differ in type.
    """

    field: str
    low: Bound | None = None
    high: Bound | None = None

    def __post_init__(self) -> None:
        bounds = [bound.value for bound in (self.low, self.high) if bound is not None]
        if not bounds:
            raise ValueError("a range needs a bound")
        if any(isinstance(value, bool) for value in bounds):
            raise ValueError("a bound is a number or a text")
        if len({kind_of(value) for value in bounds}) > 1:
            raise ValueError("the bounds are of different types")

    @property
    def kind(self) -> int:
        """The kind of the values that can be in the range."""
        bound = self.low or self.high
        assert bound is not None  # noqa: S101 (see above)
        return kind_of(bound.value)


@dataclass(frozen=True, slots=True)
class Exists:
    """The field exists with any value but null, which may be an empty list or object."""

    field: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold; true when there is none."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds; false when there is none."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: "Filter"


Condition = OneOf | Range | Exists
Filter = Condition | And | Or | Not


def matches(where: Filter, metadata: Mapping[str, Any]) -> bool:
    """Return whether a filter holds for the metadata of one document."""
    return _holds(where, metadata_values(metadata))


def filter_to_json(where: Filter) -> dict[str, Any]:
    """Return a filter as JSON, as requests have it; `filter_from_json` reads it."""
    match where:
        case And(parts):
            return {"and": [filter_to_json(part) for part in parts]}
        case Or(parts):
            return {"or": [filter_to_json(part) for part in parts]}
        case Not(part):
            return {"not": filter_to_json(part)}
        case OneOf(field, values):
            return {"field": field, "in": list(values)}
        case Exists(field):
            return {"field": field, "exists": True}
        case Range(field, low, high):
            ends = (("gt", low), ("lt", high))
            bounds = {f"{name}{'e' * end.inclusive}": end.value for name, end in ends if end}
            return {"field": field, "range": bounds}


def filter_from_json(given: Mapping[str, Any]) -> Filter:
    """Return the filter that `filter_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write this.
    """
    if "and" in given:
        return And(tuple(filter_from_json(part) for part in given["and"]))
    if "or" in given:
        return Or(tuple(filter_from_json(part) for part in given["or"]))
    if "not" in given:
        return Not(filter_from_json(given["not"]))
    if "in" in given:
        return OneOf(given["field"], tuple(given["in"]))
    if "range" in given:
        return Range(given["field"], *(_end(given["range"], name) for name in ("gt", "lt")))
    return Exists(given["field"])


def _end(bounds: Mapping[str, Any], name: str) -> Bound | None:
    for key, inclusive in ((name, False), (f"{name}e", True)):
        if key in bounds:
            return Bound(bounds[key], inclusive)
    return None


def _holds(where: Filter, values: Iterable[MetadataValue]) -> bool:
    match where:
        case And(parts):
            return all(_holds(part, values) for part in parts)
        case Or(parts):
            return any(_holds(part, values) for part in parts)
        case Not(part):
            return not _holds(part, values)
    return any(_met(where, value) for value in values if value[0] == where.field)


def _met(where: OneOf | Range | Exists, value: MetadataValue) -> bool:
    _, kind, stored = value
    match where:
        case OneOf():
            return any(kind == kind_of(one) and stored == prefix(one) for one in where.values)
        case Range():
            return kind == where.kind and _within(where, stored)
    return True


def _within(where: Range, stored: Any) -> bool:
    low, high = where.low, where.high
    above = low is None or stored > low.value or (low.inclusive and stored == low.value)
    below = high is None or stored < high.value or (high.inclusive and stored == high.value)
    return bool(above and below)

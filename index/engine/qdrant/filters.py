"""Metadata filters as conditions of Qdrant, with the meaning that `index.store.filters` gives them.

values       of a point: each field, and each field with each of its values
number.HASH  of a point: the numbers of the field of this hash, for ranges

Texts are compared by code points, for which Qdrant has no condition: a filter with such a range is
evaluated by the store. Every hit is checked against the store in any case.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from qdrant_client import models

from index.id_set import IdSet
from index.store.filters import (
    CONTAINER,
    NUMBER,
    And,
    Exists,
    Filter,
    Not,
    OneOf,
    Or,
    Range,
    Scalar,
    metadata_values,
    prefix,
)

VALUES = "values"
Payload = dict[str, Any]


def payload_values(metadata: Mapping[str, Any]) -> Payload:
    """Return what conditions read of the metadata of a document."""
    values: set[str] = set()
    numbers: dict[str, list[float]] = {}
    for field, kind, value in metadata_values(metadata):
        values.add(_value(field))
        if kind != CONTAINER:
            values.add(_value(field, value))
        if kind == NUMBER:
            numbers.setdefault(_hash(field), []).append(_finite(value))
    return {VALUES: sorted(values), "number": numbers}


def number_fields(payload: Payload) -> list[str]:
    """Return the fields of a payload that ranges are compared with."""
    return [f"number.{name}" for name in payload["number"]]


def only(condition: models.Condition | None) -> models.Filter | None:
    """Return a filter of one condition."""
    return None if condition is None else models.Filter(must=[condition])


def condition_of_ids(among: IdSet) -> models.Condition:
    """Return the condition that a document is in a set."""
    listed = has_ids(among.ids.tolist())
    return models.Filter(must_not=[listed]) if among.inverted else listed


def has_ids(ids: Sequence[int]) -> models.HasIdCondition:
    """Return the condition that a document has one of these vector ids."""
    return models.HasIdCondition(has_id=list(ids))


def condition_of(where: Filter) -> models.Condition | None:
    """Return a filter as a condition; None where Qdrant has none."""
    match where:
        case And(parts) | Or(parts):
            found = [condition_of(part) for part in parts]
            known = [condition for condition in found if condition is not None]
            if len(known) < len(parts):
                return None
            if isinstance(where, And):
                return models.Filter(must=known)
            return models.Filter(should=known) if known else has_ids([])
        case Not(part):
            inner = condition_of(part)
            return None if inner is None else models.Filter(must_not=[inner])
        case OneOf(field, values):
            return _has_value([_value(field, value) for value in values])
        case Exists(field):
            return _has_value([_value(field)])
        case Range(field) if where.kind == NUMBER:
            ends = {}
            for name, bound in (("gt", where.low), ("lt", where.high)):
                if bound is not None:
                    ends[f"{name}{'e' * bound.inclusive}"] = _finite(prefix(bound.value))
            number = models.Range(**ends)
            return models.FieldCondition(key=f"number.{_hash(field)}", range=number)
    return None


def _has_value(values: list[str]) -> models.FieldCondition:
    return models.FieldCondition(key=VALUES, match=models.MatchAny(any=values))


def _value(field: str, *value: Scalar) -> str:
    """Return a field, or a field with a value: 1 and 1.0 are the same, true is another one."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in value]
    return json.dumps([field, *(prefix(v) for v in whole)])


def _finite(value: str | float) -> float:
    """Return a number as JSON has it, which knows none beyond the largest."""
    return min(max(float(value), -sys.float_info.max), sys.float_info.max)


def _hash(field: str) -> str:
    return hashlib.blake2b(field.encode(errors="replace"), digest_size=8).hexdigest()

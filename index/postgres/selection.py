"""Filters evaluated in PostgreSQL: the vector ids of the documents for which one holds.

Every value and name of a filter is a parameter. Nothing is cached: other processes write, too.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from encoder.arrays import Int64
from index.id_set import IdSet, intersection
from index.postgres.connections import Session
from index.postgres.statements import field_key, number_value, possible_ids, text_value
from index.store.filter_sql import evaluate
from index.store.filters import Condition, Filter, OneOf, Range
from index.store.metadata import TEXT, kind_of, prefix

# Ids come as bytes, which NumPy reads: as rows, many of them take far longer.
_IDS = """
SELECT string_agg(int8send(vector_id), ''::bytea) FROM {s}.metadata_values WHERE field = %s"""
_OF_DOCUMENTS = """
SELECT string_agg(int8send(vector_id), ''::bytea) FROM {s}.documents
WHERE id = ANY(%s::text[])"""
_END = """
SELECT coalesce(max(vector_id), 0) + 1 FROM {s}.documents"""


def select(session: Session, where: Filter | None, without: Sequence[str]) -> IdSet:
    """Return the documents for which a filter holds, without some, as they are in a transaction."""
    end = int(session.value(_END))
    excluded = IdSet(end, _ids(session, _OF_DOCUMENTS, possible_ids(without)), inverted=True)
    if where is None:
        return excluded
    return intersection(evaluate(where, end, partial(_meeting, session)), excluded)


def _meeting(session: Session, where: Condition) -> Int64:
    match where:
        case OneOf():
            return _one_of(session, where)
        case Range():
            return _within(session, where)
    return _ids(session, _IDS, field_key(where.field))


def _one_of(session: Session, where: OneOf) -> Int64:
    found = [np.zeros(0, dtype=np.int64)]
    for kind in sorted({kind_of(value) for value in where.values}):
        values = [prefix(value) for value in where.values if kind_of(value) == kind]
        statement = f"{_IDS} AND kind = %s AND {_column(kind)} = ANY(%s::{_type(kind)}[])"
        given = [_stored(kind, one) for one in values]
        found.append(_ids(session, statement, field_key(where.field), kind, given))
    return np.unique(np.concatenate(found))


def _within(session: Session, where: Range) -> Int64:
    kind = where.kind
    statement = f"{_IDS} AND kind = %s"
    values: list[object] = [field_key(where.field), kind]
    for bound, sign in ((where.low, ">"), (where.high, "<")):
        if bound is not None:
            equal = "=" if bound.inclusive else ""
            statement += f" AND {_column(kind)} {sign}{equal} %s::{_type(kind)}"
            values.append(_stored(kind, prefix(bound.value)))
    return _ids(session, statement, *values)


def _column(kind: int) -> str:
    return "text" if kind == TEXT else "number"


def _type(kind: int) -> str:
    return "bytea" if kind == TEXT else "numeric"


def _stored(kind: int, value: str | int | float) -> object:
    return text_value(value) if kind == TEXT else number_value(value)


def _ids(session: Session, statement: str, *values: object) -> Int64:
    """Return the ids, ascending and different, that a statement gives as bytes."""
    found = session.value(statement, *values)
    ids: Int64 = np.unique(np.frombuffer(found or b"", dtype=">i8").astype(np.int64))
    return ids

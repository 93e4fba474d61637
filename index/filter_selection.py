"""Filters evaluated in the store's database: the vector ids of the documents for which one holds.

Every value and every name of a filter is a bound parameter. The ids of one condition come as one
text, which numpy reads: as rows, 50,000 ids take twice as long.
"""

import sqlite3
from functools import reduce

import numpy as np

from index.filters import And, Exists, Filter, Not, OneOf, Or, Range
from index.metadata_values import kind_of, prefix
from index.selection import Selection, complement, intersection, union
from index.vector_index import Int64

_IDS = "SELECT group_concat(vector_id) FROM metadata_values WHERE field = ?"
_OF_DOCUMENTS = """
SELECT group_concat(vector_id) FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
_END = "SELECT coalesce(max(vector_id), 0) + 1 FROM documents"


def select(connection: sqlite3.Connection, where: Filter | None, without: str) -> Selection:
    """Return the documents for which a filter holds, as they are in this transaction.

    Args:
        connection: inside a transaction, so that all conditions see one state.
        where: the filter; None holds for all.
        without: a JSON array of document ids that are not to be in it.
    """
    (end,) = connection.execute(_END).fetchone()
    excluded = Selection(end, _ids(connection, _OF_DOCUMENTS, without), inverted=True)
    if where is None:
        return excluded
    return intersection(_evaluate(connection, where, end), excluded)


def _evaluate(connection: sqlite3.Connection, where: Filter, end: int) -> Selection:
    match where:
        case And(parts):
            everything = Selection(end, inverted=True)
            return reduce(
                intersection, (_evaluate(connection, part, end) for part in parts), everything
            )
        case Or(parts):
            return reduce(
                union, (_evaluate(connection, part, end) for part in parts), Selection(end)
            )
        case Not(part):
            return complement(_evaluate(connection, part, end))
        case OneOf():
            return Selection(end, _one_of(connection, where))
        case Range():
            return Selection(end, _within(connection, where))
        case Exists(field):
            return Selection(end, _ids(connection, _IDS, field))


def _one_of(connection: sqlite3.Connection, where: OneOf) -> Int64:
    found = [np.zeros(0, dtype=np.int64)]
    for kind in sorted({kind_of(value) for value in where.values}):
        values = [prefix(value) for value in where.values if kind_of(value) == kind]
        marks = ", ".join("?" * len(values))
        statement = f"{_IDS} AND kind = ? AND value IN ({marks})"
        found.append(_ids(connection, statement, where.field, kind, *values))
    return np.unique(np.concatenate(found))


def _within(connection: sqlite3.Connection, where: Range) -> Int64:
    statement = f"{_IDS} AND kind = ?"
    values: list[str | int | float] = [where.field, where.kind]
    if where.low is not None:
        statement += f" AND value {'>=' if where.low.inclusive else '>'} ?"
        values.append(prefix(where.low.value))
    if where.high is not None:
        statement += f" AND value {'<=' if where.high.inclusive else '<'} ?"
        values.append(prefix(where.high.value))
    return _ids(connection, statement, *values)


def _ids(connection: sqlite3.Connection, statement: str, *values: str | int | float) -> Int64:
    """Return the ids, ascending and different, that a statement gives as one text."""
    (text,) = connection.execute(statement, values).fetchone()
    if text is None:
        return np.zeros(0, dtype=np.int64)
    ids: Int64 = np.unique(np.fromstring(text, dtype=np.int64, sep=","))
    return ids

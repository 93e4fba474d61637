"""Filters evaluated in the store's database: the vector ids of the documents for which one holds.

Every value and every name of a filter is a bound parameter. The ids of one condition come as one
text, which numpy reads: as rows, 50,000 ids take twice as long.
"""

import sqlite3
import threading
from collections import OrderedDict
from functools import reduce

import numpy as np

from encoder.arrays import Int64
from index.id_set import IdSet, complement, intersection, union
from index.store.filters import And, Exists, Filter, Not, OneOf, Or, Range
from index.store.metadata import kind_of, prefix

IDS_KEPT = 2_000_000  # of all selections together, 8 bytes each


class SelectionCache:
    """Selections by what was asked for, all of one state. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = 0
        self._ids = 0
        self._kept: OrderedDict[str, IdSet] = OrderedDict()

    def changed(self) -> None:
        """Forget all; to be called after each change is durable and before it is acknowledged."""
        with self._lock:
            self._state += 1
            self._ids = 0
            self._kept.clear()

    def find(self, asked: str) -> tuple[int, IdSet | None]:
        """Return the present state, to be given to `keep`, and what was kept, if it was."""
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
            return self._state, self._kept.get(asked)

    def keep(self, asked: str, state: int, made: IdSet) -> None:
        """Keep a selection, unless the state has changed since it was asked for.

        Those that were asked for least lately make room for it.
        """
        size = len(made.ids)
        with self._lock:
            if state != self._state or asked in self._kept or size >= IDS_KEPT:
                return
            self._kept[asked] = made
            self._ids += size + 1
            while self._ids > IDS_KEPT:
                _, dropped = self._kept.popitem(last=False)
                self._ids -= len(dropped.ids) + 1


_IDS = "SELECT group_concat(vector_id) FROM metadata_values WHERE field = ?"
_OF_DOCUMENTS = """
SELECT group_concat(vector_id) FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
_END = "SELECT coalesce(max(vector_id), 0) + 1 FROM documents"


def select(connection: sqlite3.Connection, where: Filter | None, without: str) -> IdSet:
    """Return the documents for which a filter holds, as they are in this transaction.

    Args:
        connection: inside a transaction, so that all conditions see one state.
        where: the filter; None holds for all.
        without: a JSON array of document ids that are not to be in it.
    """
    (end,) = connection.execute(_END).fetchone()
    excluded = IdSet(end, _ids(connection, _OF_DOCUMENTS, without), inverted=True)
    if where is None:
        return excluded
    return intersection(_evaluate(connection, where, end), excluded)


def _evaluate(connection: sqlite3.Connection, where: Filter, end: int) -> IdSet:
    match where:
        case And(parts):
            everything = IdSet(end, inverted=True)
            return reduce(
                intersection, (_evaluate(connection, part, end) for part in parts), everything
            )
        case Or(parts):
            return reduce(union, (_evaluate(connection, part, end) for part in parts), IdSet(end))
        case Not(part):
            return complement(_evaluate(connection, part, end))
        case OneOf():
            return IdSet(end, _one_of(connection, where))
        case Range():
            return IdSet(end, _within(connection, where))
        case Exists(field):
            return IdSet(end, _ids(connection, _IDS, field))


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

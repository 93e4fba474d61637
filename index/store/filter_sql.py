"""Filters evaluated in the store's database: the vector ids of the documents for which one holds.

Every value and name of a filter is a bound parameter. The ids of one condition are read as one
text, which NumPy parses: as rows, 50,000 ids take twice as long.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from encoder.arrays import Int64
from index.id_set import IdSet, complement, intersection, union
from index.sqlite.connections import SQLiteConnections, document_id_list
from index.store.filters import And, Condition, Filter, Not, OneOf, Or, Range
from index.store.metadata import kind_of, prefix

IDS_KEPT = 2_000_000  # of all selections together, 8 bytes each


class SelectionCache:
    """Selections by their filters, all of one state. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = 0
        self._ids = 0
        self._kept: OrderedDict[str, IdSet] = OrderedDict()

    def changed(self) -> None:
        """Forget all; call it after a change is durable and before it is acknowledged."""
        with self._lock:
            self._state += 1
            self._ids = 0
            self._kept.clear()

    def find(self, key: str) -> tuple[int, IdSet | None]:
        """Return the present state, to be given to `keep`, and the selection, if it is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._state, self._kept.get(key)

    def keep(self, key: str, state: int, selection: IdSet) -> None:
        """Keep a selection, unless the state has changed since `find`.

        The least recently used ones make room for it.
        """
        size = len(selection.ids)
        with self._lock:
            if state != self._state or key in self._kept or size >= IDS_KEPT:
                return
            self._kept[key] = selection
            self._ids += size + 1
            while self._ids > IDS_KEPT:
                _, dropped = self._kept.popitem(last=False)
                self._ids -= len(dropped.ids) + 1


class Selections:
    """The selections of an open store. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, *, read_only: bool) -> None:
        """Use the connections of a store; keep selections until `changed`.

        Where they are `read_only`, another process writes: each look finds out whether it has.
        """
        self._connections = connections
        self._read_only = read_only
        self._looking = threading.Lock()
        self._seen = -1  # data version of the store
        self._cache = SelectionCache()

    def changed(self) -> None:
        """Forget what is cached; call it after a change is durable, before it is acknowledged."""
        self._cache.changed()

    def select(self, where: Filter | None, without: Sequence[str]) -> IdSet:
        """Return the vectors of the documents for which a filter holds, without some documents.

        Raises:
            StoreError: the file cannot be read.
        """
        if self._read_only:
            self._look()
        excluded = document_id_list(without)
        key = repr((where, excluded))  # not the filter itself: 1 equals true in Python
        state, selection = self._cache.find(key)
        if selection is None:
            selection = self._read(where, excluded)
            self._cache.keep(key, state, selection)
        return selection

    def _look(self) -> None:
        with self._looking:
            seen = self._connections.data_version()
            if seen != self._seen:
                self._seen = seen
                self._cache.changed()

    def _read(self, where: Filter | None, excluded: str) -> IdSet:
        with self._connections.reading() as connection:
            return select(connection, where, excluded)


_IDS = "SELECT group_concat(vector_id) FROM metadata_values WHERE field = ?"
_OF_DOCUMENTS = """
SELECT group_concat(vector_id) FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
_END = "SELECT coalesce(max(vector_id), 0) + 1 FROM documents"


def select(connection: sqlite3.Connection, where: Filter | None, without: str) -> IdSet:
    """Return the documents for which a filter holds, as they are in this transaction.

    Args:
        connection: inside a transaction, so that all conditions see one state.
        where: the filter; None holds for every document.
        without: a JSON array of the ids of documents to exclude.
    """
    (end,) = connection.execute(_END).fetchone()
    excluded = IdSet(end, _ids(connection, _OF_DOCUMENTS, without), inverted=True)
    if where is None:
        return excluded
    return intersection(evaluate(where, end, partial(_meeting, connection)), excluded)


def evaluate(where: Filter, end: int, meeting: Callable[[Condition], Int64]) -> IdSet:
    """Return the vector ids below `end` of the documents for which a filter holds.

    Args:
        where: the filter.
        end: above every vector id.
        meeting: returns the vector ids that meet one condition, ascending and different Int64[N].
    """
    match where:
        case And(parts):
            everything = IdSet(end, inverted=True)
            return reduce(
                intersection, (evaluate(part, end, meeting) for part in parts), everything
            )
        case Or(parts):
            return reduce(union, (evaluate(part, end, meeting) for part in parts), IdSet(end))
        case Not(part):
            return complement(evaluate(part, end, meeting))
    return IdSet(end, meeting(where))


def _meeting(connection: sqlite3.Connection, where: Condition) -> Int64:
    match where:
        case OneOf():
            return _one_of(connection, where)
        case Range():
            return _within(connection, where)
    return _ids(connection, _IDS, where.field)


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

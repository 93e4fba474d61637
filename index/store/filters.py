"""Metadata filters: conditions on the documents that a search may find.

A field is the JSON Pointer (RFC 6901) of a value in the metadata; the elements of a list have the
field of the list. Null counts as missing. A field that is missing, or whose value has another type,
equals no value and is in no range, so `Not` of such a condition holds for documents without the
field.

metadata_values   one row for each value of each document: field, kind, value, vector id

The rows are the key of a B-tree without a second copy, so a condition reads adjacent rows. The rows
of a document are deleted one by one; its metadata says which. Every value and name of a filter is a
bound parameter. The ids of one condition are read as one text, which NumPy parses: as rows, 50,000
ids take twice as long.
"""

import json
import operator
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any

import numpy as np

from encoder.arrays import Int64
from index.id_set import IdSet, complement, intersection, union
from index.sqlite.connections import document_id_list
from index.store.database import Connection, Connections

Scalar = str | int | float | bool
MetadataValue = tuple[str, int, str | int | float]
"""Field, kind and value; the value of a list or object itself is 0."""

CONTAINER, BOOLEAN, NUMBER, TEXT = range(4)  # kinds

MAX_FIELD_CHARACTERS = 512  # of a JSON Pointer; longer fields cannot be filtered by
MAX_NESTING = 8  # of objects and lists; values deeper inside cannot be filtered by
MAX_VALUE_CHARACTERS = 512  # of a text in a filter

# One character more than a filter may have decides every comparison with it: a longer text equals
# no filter text, and is greater exactly if its prefix is.
_KEPT_CHARACTERS = MAX_VALUE_CHARACTERS + 1
_INT64 = range(-(2**63), 2**63)

# A value is bytes that are in the order of the values, see `stored`.
METADATA_SCHEMA = """
CREATE TABLE metadata_values (
    field TEXT NOT NULL,
    kind INTEGER NOT NULL,
    value BLOB NOT NULL,
    vector_id INTEGER NOT NULL,
    PRIMARY KEY (field, kind, value, vector_id)
) WITHOUT ROWID"""

_INSERT = """
INSERT INTO metadata_values (field, kind, value, vector_id) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
_DELETE = """
DELETE FROM metadata_values WHERE field = ? AND kind = ? AND value = ? AND vector_id = ?"""
_DELETE_ALL = """
DELETE FROM metadata_values WHERE vector_id = ?"""
_STORED = """
SELECT vector_id, metadata
FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""


def kind_of(value: Scalar) -> int:
    """Return the kind of a value: a text, a number, or true or false."""
    if isinstance(value, bool):
        return BOOLEAN
    return TEXT if isinstance(value, str) else NUMBER


def prefix(value: Scalar) -> str | int | float:
    """Return a value as it is stored: a text truncated, a number in the range of SQLite."""
    if isinstance(value, str):
        return value[:_KEPT_CHARACTERS]
    if isinstance(value, float) or value in _INT64:
        return value
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def stored(value: str | int | float) -> bytes:
    """Return a value that `prefix` gave as bytes, which are in the order of the values.

    A number is its float in the order of its bits, and what an integer exceeds that by.
    """
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    nearest = float(value) + 0.0  # not -0.0
    (bits,) = struct.unpack(">Q", struct.pack(">d", nearest))
    rest = int(value) - int(nearest) if isinstance(value, int) else 0
    return struct.pack(">QH", bits ^ (2**64 - 1 if bits >> 63 else 2**63), rest + 2**15)


def pointer(names: Iterable[str]) -> str:
    """Return the JSON Pointer (RFC 6901) of a path of names."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def metadata_values(metadata: Mapping[str, Any]) -> set[MetadataValue]:
    """Return every value of the metadata of a document that filters can use."""
    found: set[MetadataValue] = set()
    for name, value in metadata.items():
        _collect(found, pointer([name]), value, MAX_NESTING)
    return found


def insert_metadata(
    connection: Connection, documents: Iterable[tuple[int, Mapping[str, Any]]]
) -> None:
    """Insert the values of new documents, or of ones whose values were removed, by vector id."""
    rows = (
        (*value[:2], stored(value[2]), vector_id)
        for vector_id, metadata in documents
        for value in sorted(metadata_values(metadata), key=itemgetter(0, 1))
    )
    connection.executemany(_INSERT, rows)


def remove_metadata(connection: Connection, vector_ids: Sequence[int]) -> None:
    """Remove the values of documents whose metadata is about to be changed or deleted."""
    id_list = json.dumps([int(vector_id) for vector_id in vector_ids])
    for vector_id, metadata in connection.execute(_STORED, (id_list,)).fetchall():
        try:
            values = metadata_values(json.loads(metadata))
        except (AttributeError, TypeError, ValueError):  # damaged: its values are unknown
            connection.execute(_DELETE_ALL, (vector_id,))
        else:
            rows = ((*value[:2], stored(value[2]), vector_id) for value in values)
            connection.executemany(_DELETE, rows)


def _collect(found: set[MetadataValue], field: str, value: object, nesting: int) -> None:
    if value is None or len(field) > MAX_FIELD_CHARACTERS:
        return
    if isinstance(value, str | int | float):
        found.add((field, kind_of(value), prefix(value)))
        return
    found.add((field, CONTAINER, 0))
    if nesting <= 1:
        return
    if isinstance(value, dict):
        for name, part in value.items():
            _collect(found, field + pointer([name]), part, nesting - 1)
    elif isinstance(value, list):
        for part in value:
            _collect(found, field, part, nesting - 1)


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
        kinds = {kind_of(value) for value in bounds}
        if not bounds:
            raise ValueError("a range needs a bound")
        if BOOLEAN in kinds:
            raise ValueError("a bound is a number or a text")
        if len(kinds) > 1:
            raise ValueError("the bounds are of different types")

    @property
    def kind(self) -> int:
        """The kind of the values that can be in the range."""
        return next(kind_of(bound.value) for bound in (self.low, self.high) if bound is not None)

    @property
    def comparisons(self) -> list[tuple[str, bytes]]:
        """What holds for a value in the range, as it is stored: an operator and the other side."""
        ends = ((">", self.low), ("<", self.high))
        return [
            (f"{sign}{'=' * bound.inclusive}", stored(prefix(bound.value)))
            for sign, bound in ends
            if bound is not None
        ]


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


def _holds(where: Filter, values: Iterable[MetadataValue]) -> bool:
    match where:
        case And(parts):
            return all(_holds(part, values) for part in parts)
        case Or(parts):
            return any(_holds(part, values) for part in parts)
        case Not(part):
            return not _holds(part, values)
    return any(_met(where, value) for value in values if value[0] == where.field)


def _met(where: Condition, value: MetadataValue) -> bool:
    _, kind, content = value
    match where:
        case OneOf(_, values):
            return any(kind == kind_of(value) and content == prefix(value) for value in values)
        case Range():
            held = stored(content)
            return kind == where.kind and all(
                _COMPARE[sign](held, end) for sign, end in where.comparisons
            )
    return True


_COMPARE: Mapping[str, Callable[[bytes, bytes], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
IDS_KEPT = 2_000_000  # of all selections together, 8 bytes each


class Selections:
    """The selections of an open store, for many threads; StoreError where it cannot be read."""

    def __init__(self, connections: Connections) -> None:
        """Use the connections of a store; keep selections until the store has changed."""
        self._connections = connections
        self._lock = threading.Lock()
        self._sequence = 0  # of the store that they are kept of
        self._ids = 0  # of all that are kept
        self._kept: dict[str, IdSet] = {}

    def select(self, where: Filter | None, without: Sequence[str]) -> IdSet:
        """Return the vectors of the documents for which a filter holds, without some documents."""
        excluded = document_id_list(without)
        key = repr((where, excluded))  # not the filter itself: 1 equals true in Python
        with self._connections.reading() as connection:
            (sequence,) = connection.execute(_SEQUENCE).fetchone()
            with self._lock:
                if sequence == self._sequence and key in self._kept:
                    return self._kept[key]
            selection = select(connection, where, excluded)
        size = len(selection.ids) + 1
        with self._lock:
            if sequence > self._sequence or self._ids + size > IDS_KEPT:
                self._sequence, self._ids = max(sequence, self._sequence), 0
                self._kept.clear()
            if sequence == self._sequence and key not in self._kept and size <= IDS_KEPT:
                self._kept[key] = selection
                self._ids += size
        return selection


_SEQUENCE = "SELECT sequence FROM meta"
_IDS = "SELECT group_concat(vector_id) FROM metadata_values WHERE field = ?"
_OF_DOCUMENTS = """
SELECT group_concat(vector_id) FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
_END = "SELECT coalesce(max(vector_id), 0) + 1 FROM documents"


def select(connection: Connection, where: Filter | None, without: str) -> IdSet:
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
    return intersection(_evaluate(connection, where, end), excluded)


def _evaluate(connection: Connection, where: Filter, end: int) -> IdSet:
    """Return the vector ids below `end` of the documents for which a filter holds."""
    match where:
        case And(parts):
            met = (_evaluate(connection, part, end) for part in parts)
            return reduce(intersection, met, IdSet(end, inverted=True))
        case Or(parts):
            return reduce(union, (_evaluate(connection, part, end) for part in parts), IdSet(end))
        case Not(part):
            return complement(_evaluate(connection, part, end))
    return IdSet(end, _meeting(connection, where))


def _meeting(connection: Connection, where: Condition) -> Int64:
    match where:
        case OneOf(field, values):
            found = [np.zeros(0, dtype=np.int64)]
            for kind in sorted({kind_of(value) for value in values}):
                some = [stored(prefix(value)) for value in values if kind_of(value) == kind]
                statement = f"{_IDS} AND kind = ? AND value IN ({', '.join('?' * len(some))})"
                found.append(_ids(connection, statement, field, kind, *some))
            return np.unique(np.concatenate(found))
        case Range(field):
            ends = where.comparisons
            statement = f"{_IDS} AND kind = ?{''.join(f' AND value {sign} ?' for sign, _ in ends)}"
            return _ids(connection, statement, field, where.kind, *(end for _, end in ends))
    return _ids(connection, _IDS, where.field)


def _ids(connection: Connection, statement: str, *values: str | int | bytes) -> Int64:
    """Return the ids, ascending and different, that a statement gives as one text."""
    (text,) = connection.execute(statement, values).fetchone()
    if text is None:
        return np.zeros(0, dtype=np.int64)
    ids: Int64 = np.unique(np.fromstring(text, dtype=np.int64, sep=","))
    return ids

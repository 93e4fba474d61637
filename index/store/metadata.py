"""The values in the metadata of a document, as filters see them, and the table that holds them.

metadata_values   one row for each value of each document: field, kind, value, vector id

The rows are the key of a B-tree without a second copy, so a condition reads adjacent rows. The rows
of a document are deleted one by one; its metadata says which.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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

# `value` has no type, so that SQLite converts none: 1 is not "1".
METADATA_SCHEMA = """
CREATE TABLE metadata_values (
    field TEXT NOT NULL,
    kind INTEGER NOT NULL,
    value NOT NULL,
    vector_id INTEGER NOT NULL,
    PRIMARY KEY (field, kind, value, vector_id)
) WITHOUT ROWID"""

_INSERT = """
INSERT OR IGNORE INTO metadata_values (field, kind, value, vector_id) VALUES (?, ?, ?, ?)"""
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
    connection: sqlite3.Connection, documents: Iterable[tuple[int, Mapping[str, Any]]]
) -> None:
    """Insert the values of new documents, or of ones whose values were removed, by vector id."""
    rows = (
        (*value, vector_id)
        for vector_id, metadata in documents
        for value in sorted(metadata_values(metadata), key=_order)
    )
    connection.executemany(_INSERT, rows)


def remove_metadata(connection: sqlite3.Connection, vector_ids: Sequence[int]) -> None:
    """Remove the values of documents whose metadata is about to be changed or deleted."""
    id_list = json.dumps([int(one) for one in vector_ids])
    for vector_id, metadata in connection.execute(_STORED, (id_list,)).fetchall():
        try:
            values = metadata_values(json.loads(metadata))
        except (AttributeError, TypeError, ValueError):  # damaged: its values are unknown
            connection.execute(_DELETE_ALL, (vector_id,))
        else:
            connection.executemany(_DELETE, ((*value, vector_id) for value in values))


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


def _order(value: MetadataValue) -> tuple[str, int]:
    return value[:2]

"""Examines the values that filters read: every row of their table against the stored metadata."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from index.doctor_store import open_for_reading
from index.findings import Finding
from index.metadata_values import metadata_values

_ROWS = """
SELECT field, kind, value, vector_id FROM metadata_values"""
_ROWS_OF = """
SELECT field, kind, value, vector_id FROM metadata_values
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_METADATA = """
SELECT vector_id, metadata FROM documents"""
_METADATA_OF = """
SELECT vector_id, metadata FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_64_BITS = 2**64 - 1

_Sums = dict[int, int]


def examine_metadata(path: Path) -> Iterator[Finding]:
    """Compare the table that filters read with the metadata of every document.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("BEGIN")  # one state for all that is compared
        wrong = _wrong_documents(connection)
        missing, surplus = _differences(connection, wrong) if wrong else (0, 0)
    if wrong:
        problem = (
            f"the values of {len(wrong)} documents, vector id {wrong[0]} first, are not those of "
            f"their metadata: {missing} rows are missing and {surplus} should not be there"
        )
        yield Finding("metadata values", problem, "make the metadata values again")


def _wrong_documents(connection: sqlite3.Connection) -> list[int]:
    """Return the vector ids whose rows are not those that their metadata gives, ascending.

    The rows lie in the order of their values, so those of a document are only known at the end: of
    each document the sum of the hashes of its rows is kept, not the rows.
    """
    expected, unknown = _expected_sums(connection)
    held: _Sums = {}
    for *row, vector_id in connection.execute(_ROWS):
        held[vector_id] = (held.get(vector_id, 0) + _hash(tuple(row))) & _64_BITS
    different = {one for one, hashed in held.items() if expected.get(one, 0) != hashed}
    different |= {one for one, hashed in expected.items() if hashed and one not in held}
    return sorted(different - unknown)


def _expected_sums(connection: sqlite3.Connection) -> tuple[_Sums, set[int]]:
    """Return the sum of each document, and the documents whose metadata is damaged itself."""
    sums: _Sums = {}
    unknown: set[int] = set()
    for vector_id, metadata in connection.execute(_METADATA):
        try:
            values = metadata_values(json.loads(metadata))
        except (AttributeError, TypeError, ValueError):
            unknown.add(vector_id)
        else:
            sums[vector_id] = sum(map(_hash, values)) & _64_BITS
    return sums, unknown


def _differences(connection: sqlite3.Connection, wrong: list[int]) -> tuple[int, int]:
    """Count the rows of these documents that are missing, and those that should not be there."""
    wanted = (json.dumps(wrong),)
    metadata: Mapping[int, Any] = dict(connection.execute(_METADATA_OF, wanted))
    expected = {
        repr((*value, vector_id))
        for vector_id, stored in metadata.items()
        for value in metadata_values(json.loads(stored))
    }
    held = {repr(row) for row in connection.execute(_ROWS_OF, wanted)}
    return len(expected - held), len(held - expected)


def _hash(row: tuple[Any, ...]) -> int:
    return hash(repr(row)) & _64_BITS  # of the text: Python hashes -1 and -2 alike

"""Examine the alignment index: the current space, and the blocks of every document in it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from index.alignment.tables import count_pending, find_space, load_space, read_aligned_blocks
from index.doctor.findings import Finding, Remedy, require_damage
from index.doctor.store_checks import open_for_reading

_ROWS_A_CALL = 500
_NEXT = """
SELECT vector_id FROM alignment_blocks WHERE space_id = ? AND vector_id > ?
ORDER BY vector_id LIMIT ?"""


def examine_alignment(path: Path) -> Iterator[Finding]:
    """Check the checksums of the space and of every row, and that no document is missing.

    A store that was never given a space has nothing to check.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        connection.execute("BEGIN")  # everything is compared in one state
        try:
            problem = _first_problem(connection)
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:
            require_damage(path, error)
            problem = str(error)
    if problem:
        yield Finding("alignment", problem, Remedy.ALIGN)


def _first_problem(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong, or None."""
    row = find_space(connection)
    if row is None:
        return None
    dimension = load_space(connection, row.space_id).dimension
    last = -1
    while ids := _ids_after(connection, row.space_id, last):
        _, damaged = read_aligned_blocks(connection, row.space_id, dimension, ids)
        if damaged:
            return f"the blocks of vector id {damaged[0]} are damaged"
        last = ids[-1]
    pending = count_pending(connection, row.space_id)
    return f"{pending} documents with block vectors are not in it" if pending else None


def _ids_after(connection: sqlite3.Connection, space_id: int, last: int) -> list[int]:
    return [row[0] for row in connection.execute(_NEXT, (space_id, last, _ROWS_A_CALL))]

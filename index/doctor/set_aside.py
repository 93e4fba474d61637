"""Set damaged documents aside: out of the store, and what can be read of them into a file.

A text that has changed cannot be made again from anything else. Left in the store, it would stand
in the way of all that is rebuilt from the texts.
"""

import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from index.errors import StoreError
from index.lexical.tables import DamagedTermsError, read_document_terms
from index.sqlite.connections import SQLiteConnections, vector_id_list
from index.store.statements import advance_sequence, remove_documents

DAMAGED_FILE = "damaged.jsonl"
_ROWS = """
SELECT id, title, text, metadata FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""


def set_aside(connections: SQLiteConnections, file: Path, vector_ids: Sequence[int]) -> bool:
    """Append documents to a file of JSON Lines, durably, and remove them from the store.

    Bytes that are no text any more become U+FFFD; metadata that is no JSON stays a text.

    Returns:
        Whether the lexical index must be rebuilt, because the words of one cannot be read.

    Raises:
        StoreError: the file or the store cannot be written; the documents are still stored.
    """
    with connections.writing() as connection:
        rows = connection.execute(_ROWS, (vector_id_list(vector_ids),)).fetchall()
        try:
            with file.open("a", encoding="utf-8") as lines:
                lines.writelines(f"{json.dumps(_fields(row))}\n" for row in rows)
                lines.flush()
                os.fsync(lines.fileno())
        except OSError as error:
            raise StoreError(f"{file}: cannot be written: {error.strerror}") from error
        damaged = [one for one in vector_ids if not _has_sound_terms(connection, one)]
        for one in damaged:
            connection.execute("DELETE FROM document_terms WHERE vector_id = ?", (one,))
        remove_documents(connection, vector_ids, advance_sequence(connection))
    return bool(damaged)


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    document_id, title, text, metadata = row
    try:
        metadata = json.loads(metadata)
    except (TypeError, ValueError, RecursionError):
        metadata = str(metadata)
    return {"id": str(document_id), "title": str(title), "text": str(text), "metadata": metadata}


def _has_sound_terms(connection: sqlite3.Connection, vector_id: int) -> bool:
    try:
        read_document_terms(connection, [vector_id])
    except DamagedTermsError:
        return False
    return True

"""The stored documents in the order of their ids, a page at a time.

Pages are cut by id, not by number: a document that exists throughout is on exactly one of them,
whatever is inserted, replaced or deleted between two pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.blocks import Receipt
from index.document import Document
from index.errors import DocumentError, StoreError
from index.sqlite.connections import SQLiteConnections
from index.store.rows import stored_metadata

BEFORE_ALL = ""  # no document has this id

_LISTED = """
SELECT id, title, metadata, tokens, tokens_read, blocks, blocks_left_out, tokens_encoded,
    indexed_at, (
    SELECT t.family FROM texts t WHERE t.content_hash = d.content_hash AND EXISTS (
        SELECT 1 FROM texts o JOIN documents m USING (content_hash)
        WHERE o.family = t.family AND m.vector_id != d.vector_id
    )
) FROM documents d WHERE id > ? ORDER BY id LIMIT ?"""
_WHOLE = """
SELECT id, text, title, metadata FROM documents WHERE id > ? ORDER BY id"""


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A stored document without its text; `indexed_at` is ISO 8601 in UTC.

    `family` is the number of its family, None where it is in none.
    """

    id: str
    title: str
    metadata: Mapping[str, Any]
    receipt: Receipt
    indexed_at: str
    family: int | None


class DocumentPages:
    """The documents of an open store in the order of their ids. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, path: Path) -> None:
        """Use the connections of the store at `path`; `SQLiteDocumentStore.pages` is one."""
        self._connections = connections
        self._path = path

    def listed(self, after: str, limit: int) -> list[ListedDocument]:
        """Return up to `limit` documents after an id, which need not be stored; reads no text.

        Raises:
            StoreError: the file cannot be read, or a document in it is damaged.
        """
        with self._connections.reading() as connection:
            rows = connection.execute(_LISTED, (after, limit)).fetchall()
        return [
            ListedDocument(
                row[0],
                row[1],
                stored_metadata(self._path, row[0], row[2]),
                Receipt(*row[3:8]),
                row[8],
                row[9],
            )
            for row in rows
        ]

    def whole(self, after: str, characters: int) -> list[Document]:
        """Return documents after an id until they have so many characters together.

        At least one, if there is one: memory is bounded by `characters` and the longest document.

        Raises:
            StoreError: the file cannot be read, or a document in it is damaged.
        """
        documents: list[Document] = []
        with self._connections.reading() as connection:
            rows = connection.execute(_WHOLE, (after,))
            while characters > 0 and (row := rows.fetchone()) is not None:
                documents.append(self._document(*row))
                characters -= len(documents[-1].text) + len(row[3])
            rows.close()
        return documents

    def _document(self, document_id: str, text: str, title: str, metadata: str) -> Document:
        try:
            shown = stored_metadata(self._path, document_id, metadata)
            return Document(document_id, text, title, shown)
        except DocumentError as error:
            raise StoreError(f"{self._path}: document {document_id!r} is damaged") from error

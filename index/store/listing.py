"""The stored documents in the order of their ids, a page at a time.

Pages are cut by id, not by number: a document that exists throughout is on exactly one of them,
whatever is inserted, replaced or deleted between two pages.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from encoder.blocks import Receipt
from index.document import Document
from index.store.database import Connections
from index.store.rows import stored_document, stored_metadata

BEFORE_ALL = ""  # no document has this id
_WHOLE_AT_ONCE = 8

_LISTED = """
SELECT vector_id, id, title, metadata, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at
FROM documents WHERE id > ? ORDER BY id LIMIT ?"""
_WHOLE = """
SELECT vector_id, id, text, title, metadata, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at
FROM documents WHERE id > ? ORDER BY id LIMIT ?"""


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
    """The documents of an open store in the order of their ids. Safe to use from many threads.

    Every call raises StoreError where the file cannot be read, `DamagedDocumentError` where the
    metadata of a document is no JSON any more.
    """

    def __init__(
        self,
        connections: Connections,
        path: object,
        families_of: Callable[[Iterable[int]], Mapping[int, int]],
    ) -> None:
        """Use the connections of the store at `path`; `DocumentStore.pages` is one."""
        self._connections = connections
        self._families_of = families_of
        self._path = path

    def listed(self, after: str, limit: int) -> list[ListedDocument]:
        """Return up to `limit` documents after an id, which need not be stored; reads no text."""
        rows = self._connections.read_rows(_LISTED, after, limit)
        families = self._families_of(row[0] for row in rows)
        return [
            ListedDocument(
                *(document_id, title, stored_metadata(self._path, document_id, metadata)),
                *(Receipt(*receipt), indexed_at, families.get(vector_id)),
            )
            for vector_id, document_id, title, metadata, *receipt, indexed_at in rows
        ]

    def whole(self, after: str, characters: int) -> list[Document]:
        """Return documents after an id until they have so many characters together.

        At least one, if there is one: memory is bounded by `characters` and the longest document.
        """
        documents = []
        with self._connections.reading() as connection:
            rows: list[tuple[Any, ...]] = []
            while characters > 0:
                rows = rows or connection.execute(_WHOLE, (after, _WHOLE_AT_ONCE)).fetchall()[::-1]
                if not rows:
                    break
                row = rows.pop()
                documents.append(stored_document(self._path, row).document)
                characters, after = characters - len(row[2]) - len(row[4]), row[1]
        return documents

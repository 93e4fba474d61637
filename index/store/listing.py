"""The stored documents in the order of their ids, a page at a time.

Pages are cut by id, not by number: a document that exists throughout is on exactly one of them,
whatever is inserted, replaced or deleted between two pages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.blocks import Receipt
from index.document import Document
from index.errors import DamagedDocumentError, DocumentError
from index.sqlite.connections import SQLiteConnections
from index.store.checksums import DamageLog, summary_checksum, unsound_summaries
from index.store.rows import stored_metadata

BEFORE_ALL = ""  # no document has this id

_LISTED = """
SELECT d.vector_id, id, title, metadata, tokens, tokens_read, d.blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at, CAST(id AS BLOB),
    c.summary, c.details, c.vector, c.blocks
FROM documents d LEFT JOIN checksums c USING (vector_id)
WHERE id > CAST(? AS TEXT) ORDER BY id LIMIT ?"""
_WHOLE = """
SELECT d.vector_id, id, text, title, metadata, content_hash, CAST(id AS BLOB), c.summary
FROM documents d LEFT JOIN checksums c USING (vector_id)
WHERE id > CAST(? AS TEXT) ORDER BY id"""


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


@dataclass(frozen=True, slots=True)
class DamagedDocument:
    """A stored document that cannot be read; `place` is what to list on after."""

    id: str
    place: str


@dataclass(frozen=True, slots=True)
class Page:
    """Documents in the order of their ids, and the ids of those that are damaged and left out.

    Attributes:
        documents: that are sound.
        damaged: ids of the others.
        last: what to list on after; None on an empty page.
        full: whether there may be more after it.
    """

    documents: Sequence[ListedDocument]
    damaged: Sequence[str]
    last: str | None
    full: bool


class DocumentPages:
    """The documents of an open store in the order of their ids. Safe to use from many threads.

    Every call raises StoreError where the file cannot be read.
    """

    def __init__(
        self,
        connections: SQLiteConnections,
        path: Path,
        damage: DamageLog,
        families_of: Callable[[Iterable[int]], Mapping[int, int]],
    ) -> None:
        """Use the connections of the store at `path`; `SQLiteDocumentStore.pages` is one."""
        self._connections = connections
        self._families_of = families_of
        self._path = path
        self._damage = damage

    def listed(self, after: str, limit: int) -> Page:
        """Return up to `limit` documents after an id, which need not be stored; reads no text."""
        with self._connections.reading() as connection:
            rows = connection.execute(_LISTED, (_bytes(after), limit)).fetchall()
        unsound = unsound_summaries(rows)
        families = self._families_of(row[0] for row in rows)
        documents = []
        for row in rows:
            if row[0] not in unsound:
                try:
                    documents.append(_listed(self._path, row[:-4], families.get(row[0])))
                except DamagedDocumentError:
                    unsound.add(row[0])
        if unsound:
            self._damage.note(unsound, "title or metadata")
        return Page(
            documents,
            [row[1] for row in rows if row[0] in unsound],
            _place(rows[-1][-5]) if rows else None,
            len(rows) == limit,
        )

    def whole(self, after: str, characters: int) -> list[Document | DamagedDocument]:
        """Return documents after an id until they have so many characters together.

        At least one, if there is one: memory is bounded by `characters` and the longest document.
        """
        documents: list[Document | DamagedDocument] = []
        with self._connections.reading() as connection:
            rows = connection.execute(_WHOLE, (_bytes(after),))
            while characters > 0 and (row := rows.fetchone()) is not None:
                documents.append(self._document(row))
                characters -= len(row[2]) + len(row[4])
            rows.close()
        return documents

    def _document(self, row: tuple[Any, ...]) -> Document | DamagedDocument:
        vector_id, document_id, text, title, metadata, content_hash, raw, checksum = row
        try:
            shown = stored_metadata(self._path, document_id, metadata)
            document = Document(document_id, text, title, shown)
        except (DamagedDocumentError, DocumentError):
            document = None
        summary = summary_checksum((vector_id, document_id, title, metadata))
        if document is None or summary != checksum or document.content_hash != content_hash:
            self._damage.note([vector_id], "text or title")
            return DamagedDocument(document_id, _place(raw))
        return document


# An id that is damaged has a place in the order, too: that of its bytes.
def _bytes(place: str) -> bytes:
    return place.encode("utf-8", "surrogateescape")


def _place(document_id: bytes) -> str:
    return document_id.decode("utf-8", "surrogateescape")


def _listed(path: Path, row: tuple[Any, ...], family: int | None) -> ListedDocument:
    _, document_id, title, metadata, *receipt, indexed_at, _ = row
    shown = stored_metadata(path, document_id, metadata)
    return ListedDocument(document_id, title, shown, Receipt(*receipt), indexed_at, family)

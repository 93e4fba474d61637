"""The stored documents in an order, a page at a time, and how many have which metadata.

Pages are cut by what documents are ordered by, not by number: one that stays as it is, is on
exactly one of them, whatever is inserted, replaced or deleted between two pages.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.blocks import Receipt
from index.document import Document
from index.id_set import IdSet
from index.sqlite.connections import SQLiteConnections
from index.store.filters import Scalar
from index.store.rows import stored_document, stored_metadata

BEFORE_ALL = ""  # no document has this id

MAX_FACETS, MAX_FACET_VALUES = 12, 20  # fields, and the most frequent values of each
# What documents are ordered by; `date` is that of the metadata, as text: ISO 8601 sorts.
ORDERS: Mapping[str, str] = {
    "id": "id",
    "title": "title",
    "size": "tokens",
    "date": "coalesce(CAST(metadata ->> '$.date' AS TEXT), '')",
}

_LISTED = """
SELECT {key}, vector_id, id, title, metadata, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at
FROM documents WHERE {conditions} ORDER BY {places} LIMIT ?"""
_AMONG = "vector_id < ? AND vector_id {not_}IN (SELECT value FROM json_each(?))"
_METADATA = "SELECT vector_id, id, metadata FROM documents"
_WHOLE = """
SELECT vector_id, id, text, title, metadata, tokens, tokens_read, blocks, blocks_left_out,
    tokens_encoded, payload_characters, indexed_at
FROM documents WHERE id > ? ORDER BY id"""


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A stored document without its text; `indexed_at` is ISO 8601 in UTC.

    `family` is the number of its family, None where it is in none; `key` what it is ordered by.
    """

    id: str
    title: str
    metadata: Mapping[str, Any]
    receipt: Receipt
    indexed_at: str
    family: int | None
    key: str | int = ""


@dataclass(frozen=True, slots=True)
class Facet:
    """A field of the metadata: how many documents have it, and its frequent values with theirs."""

    field: str
    documents: int
    values: Sequence[tuple[Scalar, int]]


class DocumentPages:
    """The documents of an open store in an order. Safe to use from many threads.

    Every call raises StoreError where the file cannot be read, `DamagedDocumentError` where the
    metadata of a document is no JSON any more.
    """

    def __init__(
        self,
        connections: SQLiteConnections,
        path: Path,
        families_of: Callable[[Iterable[int]], Mapping[int, int]],
    ) -> None:
        """Use the connections of the store at `path`; `SQLiteDocumentStore.pages` is one."""
        self._connections = connections
        self._families_of = families_of
        self._path = path

    def listed(
        self,
        after: str,
        limit: int,
        *,
        order: str = "id",
        key: str | int | None = None,
        among: IdSet | None = None,
    ) -> list[ListedDocument]:
        """Return up to `limit` documents after one, which need not be stored; reads no text.

        Args:
            after: the id of that one.
            limit: at least 1.
            order: one of `ORDERS`, with a minus before it for the last ones first.
            key: of that one; None for the first page.
            among: these documents alone.
        """
        expression, falls = ORDERS[order.removeprefix("-")], order.startswith("-")
        values: list[str | int] = [after]
        conditions, places = ["id > ?"], "id"
        if order != "id":
            places = f"{expression} DESC, id DESC" if falls else f"{expression}, id"
            conditions, values = ["true"], []
            if key is not None:
                conditions = [f"({expression}, id) {'<' if falls else '>'} (?, ?)"]
                values = [key, after]
        if among is not None:
            conditions.append(_AMONG.format(not_="NOT " if among.inverted else ""))
            values += [among.end, json.dumps(among.ids.tolist())]
        statement = _LISTED.format(
            key=expression, conditions=" AND ".join(conditions), places=places
        )
        rows = self._connections.read_rows(statement, *values, limit)
        families = self._families_of(row[1] for row in rows)
        return [
            ListedDocument(
                document_id,
                title,
                stored_metadata(self._path, document_id, metadata),
                Receipt(*receipt),
                indexed_at,
                families.get(vector_id),
                place,
            )
            for place, vector_id, document_id, title, metadata, *receipt, indexed_at in rows
        ]

    def facets(self, among: IdSet | None = None) -> list[Facet]:
        """Return the fields of the metadata of all documents, or of some, the commonest first.

        Every element of a list counts. A field whose values all differ tells nothing.
        """
        having, counted = Counter[str](), defaultdict[str, Counter[tuple[type, Scalar]]](Counter)
        with self._connections.reading() as connection:
            for vector_id, document_id, metadata in connection.execute(_METADATA):
                if among is not None and not among.has(vector_id):
                    continue
                for name, value in stored_metadata(self._path, document_id, metadata).items():
                    every = value if isinstance(value, list) else [value]
                    told = {(type(one), one) for one in every if isinstance(one, Scalar)}
                    having[name] += bool(told)
                    counted[name].update(told)
        telling = [
            name
            for name, _ in having.most_common()
            if counted[name] and not len(counted[name]) == counted[name].total() > 1
        ]
        return [
            Facet(
                name,
                having[name],
                [(value, n) for (_, value), n in counted[name].most_common(MAX_FACET_VALUES)],
            )
            for name in telling[:MAX_FACETS]
        ]

    def whole(self, after: str, characters: int) -> list[Document]:
        """Return documents after an id until they have so many characters together.

        At least one, if there is one: memory is bounded by `characters` and the longest document.
        """
        documents = []
        with self._connections.reading() as connection:
            rows = connection.execute(_WHOLE, (after,))
            while characters > 0 and (row := rows.fetchone()) is not None:
                documents.append(stored_document(self._path, row).document)
                characters -= len(row[2]) + len(row[4])
            rows.close()
        return documents

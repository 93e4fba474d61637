"""Families of the stored documents: copies and versions of one text.

A family has two documents or more. Its number is that of its text that was stored first.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64
from index.common_text.collection import CommonTexts
from index.near_duplicates.signatures import sign
from index.near_duplicates.tables import (
    SignedText,
    add_texts,
    follow_rule,
    make_family_tables,
)
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections, document_id_list

_DOCUMENTS_A_TRANSACTION = 64
_OF_DOCUMENTS = """
SELECT d.vector_id, t.family FROM document_texts d JOIN texts t USING (text_id)
WHERE d.vector_id IN (SELECT value FROM json_each(?)) AND EXISTS (
    SELECT 1 FROM texts o JOIN document_texts m USING (text_id)
    WHERE o.family = t.family AND m.vector_id != d.vector_id
)"""
_OF_IDS = """
SELECT d.id, d.vector_id FROM documents d WHERE d.id IN (SELECT value FROM json_each(?))"""
_VECTOR_IDS = """
SELECT d.vector_id FROM texts t JOIN document_texts d USING (text_id)
WHERE t.family IN (SELECT value FROM json_each(?)) ORDER BY d.vector_id"""
_PAGE = """
SELECT d.id, d.title, t.text_id = ?2
FROM texts t JOIN document_texts USING (text_id) JOIN documents d USING (vector_id)
WHERE t.family = ?1 AND d.id > ?3 ORDER BY d.id LIMIT ?4"""
_TEXT_OF = """
SELECT t.family, t.text_id
FROM documents d JOIN document_texts USING (vector_id) JOIN texts t USING (text_id)
WHERE d.id IN (SELECT value FROM json_each(?))"""
_TWO_OF = """
SELECT count(*) FROM (
    SELECT 1 FROM texts JOIN document_texts USING (text_id) WHERE family = ? LIMIT 2
)"""
_LARGEST = """
SELECT t.family, count(*), count(DISTINCT t.text_id), min(d.id)
FROM texts t JOIN document_texts USING (text_id) JOIN documents d USING (vector_id)
GROUP BY t.family HAVING count(*) > 1 ORDER BY count(*) DESC, t.family LIMIT ?"""
_TOTALS = """
SELECT count(*), coalesce(sum(members), 0) FROM (
    SELECT count(*) AS members FROM texts t JOIN document_texts USING (text_id)
    GROUP BY t.family HAVING count(*) > 1
)"""
_NUMBER_PENDING = """
SELECT count(*) FROM documents d
WHERE NOT EXISTS (SELECT 1 FROM document_texts t WHERE t.vector_id = d.vector_id)"""
_NEXT_PENDING = """
SELECT d.vector_id, d.content_hash, d.text FROM documents d
WHERE d.vector_id > ? AND NOT EXISTS (
    SELECT 1 FROM document_texts t WHERE t.vector_id = d.vector_id
) ORDER BY d.vector_id LIMIT ?"""
_IS_STORED = """
SELECT 1 FROM documents WHERE vector_id = ?"""


@dataclass(frozen=True, slots=True)
class Member:
    """A document of a family; `copy` if it has the same text as the requested document."""

    id: str
    title: str
    copy: bool


@dataclass(frozen=True, slots=True)
class Family:
    """A family as a whole.

    Attributes:
        number: identifies the family.
        documents: number of its documents.
        texts: number of different texts; 1 if all are copies.
        first: its first document in the order of ids.
    """

    number: int
    documents: int
    texts: int
    first: str


class Families:
    """The families of an open store. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, common: CommonTexts) -> None:
        """Use the connections of a store; `SQLiteDocumentStore.families` is one."""
        self._connections = connections
        self._common = common

    def of(self, vector_ids: Iterable[int]) -> dict[int, int]:
        """Return the number of the family of each of these documents that is in one."""
        id_list = json.dumps([int(vector_id) for vector_id in vector_ids])
        with self._connections.reading() as connection:
            return dict(connection.execute(_OF_DOCUMENTS, (id_list,)))

    def of_ids(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of the family of each of these stored documents that is in one."""
        with self._connections.reading() as connection:
            found = dict(connection.execute(_OF_IDS, (document_id_list(document_ids),)))
        numbers = self.of(found.values())
        return {
            name: numbers[vector_id] for name, vector_id in found.items() if vector_id in numbers
        }

    def hidden_by(self, document_ids: Sequence[str]) -> Int64:
        """Return the vector ids of these documents and of their families, ascending."""
        with self._connections.reading() as connection:
            found = dict(connection.execute(_OF_IDS, (document_id_list(document_ids),)))
        stored = np.array(list(found.values()), dtype=np.int64)
        return np.union1d(stored, self.vector_ids(self.of(found.values()).values()))

    def vector_ids(self, numbers: Iterable[int]) -> Int64:
        """Return the vector ids of all documents of these families, ascending: Int64[N]."""
        id_list = json.dumps(sorted(set(numbers)))
        with self._connections.reading() as connection:
            rows = connection.execute(_VECTOR_IDS, (id_list,)).fetchall()
        return np.array(rows, dtype=np.int64).reshape(-1)

    def page(self, document_id: str, after: str, limit: int) -> tuple[int | None, list[Member]]:
        """Return the family of a document: its number and a page of its documents.

        Returns:
            None and no documents where it is in no family, or is not stored.
        """
        with self._connections.reading() as connection:
            text = connection.execute(_TEXT_OF, (document_id_list([document_id]),)).fetchone()
            if text is None:
                return None, []
            rows = connection.execute(_PAGE, (*text, after, limit)).fetchall()
            (size,) = connection.execute(_TWO_OF, (text[0],)).fetchone()
        if size < 2:
            return None, []
        return int(text[0]), [Member(name, title, bool(copy)) for name, title, copy in rows]

    def largest(self, limit: int) -> list[Family]:
        """Return the families with the most documents, largest first; reads all of them."""
        with self._connections.reading() as connection:
            return [Family(*row) for row in connection.execute(_LARGEST, (limit,))]

    def totals(self) -> tuple[int, int]:
        """Return how many families there are, and how many documents are in them; reads all."""
        with self._connections.reading() as connection:
            families, documents = connection.execute(_TOTALS).fetchone()
        return int(families), int(documents)

    def pending(self) -> int:
        """Count the documents whose texts are not signed yet."""
        with self._connections.reading() as connection:
            return int(connection.execute(_NUMBER_PENDING).fetchone()[0])

    def drop_if_rule_changed(self) -> None:
        """Drop all families if the signatures were made by another rule."""
        with self._connections.reading() as connection:
            follows = follow_rule(connection)
        if not follows:
            with self._connections.writing() as connection:
                make_family_tables(connection)

    def find(self, progress: Progress, stop: Callable[[], bool] = lambda: False) -> None:
        """Sign the texts that are not signed yet, and link their near-duplicates.

        Documents may be put and deleted meanwhile. It ends early when `stop` returns true; a later
        call continues, also after a kill.
        """
        progress.started("looking for near-duplicates", self.pending())
        last = 0
        while not stop():
            with self._connections.reading() as connection:
                common = self._common.read(connection)
                rows = connection.execute(
                    _NEXT_PENDING, (last, _DOCUMENTS_A_TRANSACTION)
                ).fetchall()
            if not rows:
                return
            signed = [
                SignedText(vector_id, content_hash, sign(text, common))
                for vector_id, content_hash, text in rows
            ]
            with self._connections.writing() as connection:
                if self._common.read(connection).version != common.version:
                    continue
                present = (
                    text
                    for text in signed
                    if connection.execute(_IS_STORED, (text.vector_id,)).fetchone()
                )
                add_texts(connection, present)
            last = rows[-1][0]
            progress.advanced(len(rows))

"""Families of the stored documents: copies and versions of one text.

A family has two documents or more. Its number is the least vector id in it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Int64
from index.common_text.collection import CommonTexts
from index.followers import FollowerFile
from index.near_duplicates.signatures import sign, signing_rule
from index.near_duplicates.tables import (
    FAMILIES,
    SignedText,
    add_documents,
    add_texts,
    remove_documents,
)
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections, document_id_list, vector_id_list

FAMILIES_FILE = "families.sqlite3"
_OF_DOCUMENTS = """
SELECT d.vector_id, t.family FROM document_texts d JOIN texts t USING (text_id)
WHERE d.vector_id IN (SELECT value FROM json_each(?)) AND EXISTS (
    SELECT 1 FROM texts o JOIN document_texts m USING (text_id)
    WHERE o.family = t.family AND m.vector_id != d.vector_id
)"""
_OF_IDS = """
SELECT id, vector_id FROM documents WHERE id IN (SELECT value FROM json_each(?))"""
_VECTOR_IDS = """
SELECT d.vector_id FROM texts t JOIN document_texts d USING (text_id)
WHERE t.family IN (SELECT value FROM json_each(?)) ORDER BY d.vector_id"""
_PAGE = """
SELECT id, title, vector_id FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) AND id > ? ORDER BY id LIMIT ?"""
_FIRST = """
SELECT min(id) FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_COPIES = """
SELECT vector_id FROM document_texts
WHERE text_id = (SELECT text_id FROM document_texts WHERE vector_id = ?)"""
_LARGEST = """
SELECT t.family, count(*), count(DISTINCT t.text_id)
FROM texts t JOIN document_texts USING (text_id)
GROUP BY t.family HAVING count(*) > 1 ORDER BY count(*) DESC, t.family LIMIT ?"""
_TOTALS = """
SELECT count(*), coalesce(sum(members), 0) FROM (
    SELECT count(*) AS members FROM texts t JOIN document_texts USING (text_id)
    GROUP BY t.family HAVING count(*) > 1
)"""
_NEXT_PENDING = """
SELECT vector_id FROM document_texts
WHERE text_id IS NULL AND vector_id > ? ORDER BY vector_id LIMIT ?"""
_TEXTS = """
SELECT vector_id, content_hash, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""


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


class Families(FollowerFile):
    """The families of an open store. Safe to use from many threads."""

    _add = staticmethod(add_documents)
    _remove = staticmethod(remove_documents)

    def __init__(
        self,
        truth: SQLiteConnections,
        store: Path,
        common: CommonTexts,
        *,
        find: bool,
        read_only: bool,
    ) -> None:
        """Follow the store at a path; `SQLiteDocumentStore.families` is one.

        Without `find`, near-duplicates of documents that are put are not looked for.
        """
        path = store.with_name(FAMILIES_FILE)
        super().__init__(
            truth, path, FAMILIES, rule=signing_rule(), at_once=find, read_only=read_only
        )
        self._common = common

    def of(self, vector_ids: Iterable[int]) -> dict[int, int]:
        """Return the number of the family of each of these documents that is in one."""
        id_list = json.dumps([int(vector_id) for vector_id in vector_ids])
        with self.reading() as connection:
            return dict(connection.execute(_OF_DOCUMENTS, (id_list,)))

    def of_ids(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of the family of each of these stored documents that is in one."""
        found = self._stored(document_ids)
        numbers = self.of(found.values())
        return {
            name: numbers[vector_id] for name, vector_id in found.items() if vector_id in numbers
        }

    def hidden_by(self, document_ids: Sequence[str]) -> Int64:
        """Return the vector ids of these documents and of their families, ascending."""
        found = self._stored(document_ids)
        stored = np.array(list(found.values()), dtype=np.int64)
        return np.union1d(stored, self.vector_ids(self.of(found.values()).values()))

    def vector_ids(self, numbers: Iterable[int]) -> Int64:
        """Return the vector ids of all documents of these families, ascending: Int64[N]."""
        id_list = json.dumps(sorted(set(numbers)))
        with self.reading() as connection:
            rows = connection.execute(_VECTOR_IDS, (id_list,)).fetchall()
        return np.array(rows, dtype=np.int64).reshape(-1)

    def page(self, document_id: str, after: str, limit: int) -> tuple[int | None, list[Member]]:
        """Return the family of a document: its number and a page of its documents.

        Returns:
            None and no documents where it is in no family, or is not stored.
        """
        vector_ids = list(self._stored([document_id]).values())
        numbers = list(self.of(vector_ids).values())
        if not numbers:
            return None, []
        with self.reading() as connection:
            copies = {row[0] for row in connection.execute(_COPIES, vector_ids)}
        members = vector_id_list(self.vector_ids(numbers).tolist())
        rows = self._truth.read_rows(_PAGE, members, after, limit)
        return numbers[0], [Member(name, title, number in copies) for name, title, number in rows]

    def largest(self, limit: int) -> list[Family]:
        """Return the families with the most documents, largest first; reads all of them."""
        with self.reading() as connection:
            rows = connection.execute(_LARGEST, (limit,)).fetchall()
        found = []
        for number, documents, texts in rows:
            members = vector_id_list(self.vector_ids([number]).tolist())
            ((first,),) = self._truth.read_rows(_FIRST, members)
            if first is not None:
                found.append(Family(number, documents, texts, first))
        return found

    def totals(self) -> tuple[int, int]:
        """Return how many families there are, and how many documents are in them; reads all."""
        with self.reading() as connection:
            families, documents = connection.execute(_TOTALS).fetchone()
        return int(families), int(documents)

    def find(self, progress: Progress, stop: Callable[[], bool] = lambda: False) -> None:
        """Sign the texts that are not signed yet, and link their near-duplicates.

        Documents may be put and deleted meanwhile. It ends early when `stop` returns true; a later
        call continues, also after a kill.
        """
        self._finish("looking for near-duplicates", progress, stop)

    def _stored(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Return the vector ids of stored documents by id."""
        return dict(self._truth.read_rows(_OF_IDS, document_id_list(document_ids)))

    def _rest(self, limit: int, after: int = 0) -> Sequence[int]:
        with self._connections().reading() as connection:
            return [row[0] for row in connection.execute(_NEXT_PENDING, (after, limit))]

    def _derive(self, vector_ids: Sequence[int]) -> None:
        """Sign the texts of documents, and link them."""
        with self._truth.reading() as store:
            common = self._common.read(store)
            rows = store.execute(_TEXTS, (vector_id_list(vector_ids),)).fetchall()
        signed = [
            SignedText(vector_id, content_hash, sign(text, common))
            for vector_id, content_hash, text in rows
            if isinstance(text, str)  # else it is damaged
        ]
        with self.writing() as connection, self._truth.reading() as store:
            add_texts(connection, store, signed)

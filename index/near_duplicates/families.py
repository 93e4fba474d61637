"""Families of the stored documents: copies and versions of one text.

A family has two documents or more. Copies have one text, so that they are a family at once, and
thousands of them cost no more than one. A family is a connected component of the links; its number
is the least vector id in it, so that it depends on what is stored alone.

texts           every different text that is stored: its content hash, its signature, its family
document_texts  the text of each document; none of one that was not looked at yet
text_bands      the bands of the signatures, by which near-duplicates are found
text_links      pairs of texts that were confirmed to be near-duplicates, in both directions
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64, UInt32
from index.common_text.collection import CommonTexts
from index.followers import STATE_SCHEMA, Follower
from index.near_duplicates.signatures import (
    band_keys,
    pack,
    resemblances,
    sign,
    signing_rule,
    unpack,
)
from index.sqlite.block_vectors import BLOCKS_BY_VECTOR_ID, read_block_vectors
from index.sqlite.connections import DatabaseFormat, document_id_list, vector_id_list
from index.store.database import Connection, Connections

FAMILIES_FILE = "families.sqlite3"
LEAST_SHARE = 0.5  # of the blocks of the longer text must be exceeded
LEAST_COSINE = 0.75  # between a block and its counterpart
_LEAST_RESEMBLANCE = 0.2  # copies with a fifth of the words changed have 0.33
_WITHOUT_BLOCKS = 0.5  # resemblance that suffices without block vectors
_FROM_BAND = 256
_COMPARED = 64
_CONFIRMED = 16
FAMILIES = DatabaseFormat(
    "families",
    application_id=0x4C4D464D,
    version=2,
    schema="""
CREATE TABLE texts (
    text_id INTEGER PRIMARY KEY AUTOINCREMENT,
    content_hash BLOB NOT NULL UNIQUE,
    family INTEGER NOT NULL,
    signature BLOB NOT NULL
);
CREATE INDEX texts_by_family ON texts (family);
CREATE TABLE document_texts (vector_id INTEGER PRIMARY KEY, text_id INTEGER);
CREATE INDEX document_texts_by_text ON document_texts (text_id);
CREATE TABLE text_bands (
    band INTEGER NOT NULL,
    text_id INTEGER NOT NULL,
    PRIMARY KEY (band, text_id)
) WITHOUT ROWID;
CREATE TABLE text_links (
    text_id INTEGER NOT NULL,
    other INTEGER NOT NULL,
    PRIMARY KEY (text_id, other)
) WITHOUT ROWID;
""",
    mark="texts",
)
FOLLOWING_FAMILIES = replace(FAMILIES, schema=FAMILIES.schema + STATE_SCHEMA)  # in a database
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
) AS counted"""
_NEXT_PENDING = """
SELECT vector_id FROM document_texts
WHERE text_id IS NULL AND vector_id > ? ORDER BY vector_id LIMIT ?"""
_TEXTS = """
SELECT vector_id, content_hash, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""
_TEXTS_OF_BAND = """
SELECT text_id FROM text_bands WHERE band = ? ORDER BY text_id LIMIT ?"""
_SIGNATURES = """
SELECT text_id, signature FROM texts WHERE text_id IN (SELECT value FROM json_each(?))"""
_FIRST_BLOCKS = f"{BLOCKS_BY_VECTOR_ID} ORDER BY vector_id LIMIT 1"
_DOCUMENTS_OF_TEXT = """
SELECT vector_id FROM document_texts WHERE text_id = ? ORDER BY vector_id LIMIT 64"""
_TEXT_OF_CONTENT = """
SELECT text_id, family FROM texts WHERE content_hash = ?"""
_INSERT_TEXT = """
INSERT INTO texts (content_hash, family, signature) VALUES (?, ?, ?) RETURNING text_id"""
_INSERT_DOCUMENT = """
INSERT INTO document_texts (vector_id, text_id) VALUES (?, NULL)"""
_STILL_PENDING = """
SELECT vector_id FROM document_texts
WHERE text_id IS NULL AND vector_id IN (SELECT value FROM json_each(?))"""
_SET_TEXT = """
UPDATE document_texts SET text_id = ? WHERE vector_id = ?"""
_NUMBER = """
UPDATE texts SET family = (
    SELECT min(vector_id) FROM document_texts WHERE text_id IN (SELECT value FROM json_each(?1))
) WHERE text_id IN (SELECT value FROM json_each(?1))"""
_INSERT_BAND = """
INSERT INTO text_bands (band, text_id) VALUES (?, ?) ON CONFLICT DO NOTHING"""
_INSERT_LINK = """
INSERT INTO text_links (text_id, other) VALUES (?, ?) ON CONFLICT DO NOTHING"""
_FAMILY_OF = """
SELECT family FROM texts WHERE text_id = ?"""
_JOIN_FAMILY = """
UPDATE texts SET family = ? WHERE family = ?"""
_TEXTS_OF_DOCUMENTS = """
SELECT DISTINCT text_id FROM document_texts
WHERE text_id IS NOT NULL AND vector_id IN (SELECT value FROM json_each(?))"""
_WITH_COPIES = """
SELECT vector_id FROM document_texts WHERE text_id IN (
    SELECT text_id FROM document_texts WHERE vector_id IN (SELECT value FROM json_each(?))
)"""
_REMOVE_DOCUMENTS = """
DELETE FROM document_texts WHERE vector_id IN (SELECT value FROM json_each(?))"""
_NUMBERED_BY = """
SELECT text_id FROM texts WHERE family IN (SELECT value FROM json_each(?))"""
_WITHOUT_DOCUMENT = """
SELECT signature FROM texts WHERE text_id = ?1
AND NOT EXISTS (SELECT 1 FROM document_texts WHERE text_id = ?1)"""
_LINKED = """
SELECT other FROM text_links WHERE text_id = ?"""
_REACHED = """
WITH RECURSIVE reached (text_id) AS (
    SELECT text_id FROM texts WHERE text_id = ?
    UNION SELECT l.other FROM reached r JOIN text_links l USING (text_id)
) SELECT text_id FROM reached"""
_REMOVE_LINK = """
DELETE FROM text_links WHERE text_id = ? AND other = ?"""
_REMOVE_BAND = """
DELETE FROM text_bands WHERE band = ? AND text_id = ?"""
_REMOVE_TEXT = """
DELETE FROM texts WHERE text_id = ?"""


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


def _confirmed_links(
    connection: Connection, store: Connection, vector_id: int, signature: UInt32
) -> list[int]:
    """Return the ids of the texts that are near-duplicates of a text; an empty one has none."""
    candidates = _candidates(connection, signature)
    if not candidates:
        return []
    blocks = _blocks(store, [vector_id])
    found = []
    for text_id, resemblance in candidates:
        documents = [row[0] for row in connection.execute(_DOCUMENTS_OF_TEXT, (text_id,))]
        if _confirms(resemblance, blocks, _blocks(store, documents)):
            found.append(text_id)
    return sorted(found)


def _confirms(resemblance: float, left: Float32 | None, right: Float32 | None) -> bool:
    """Compare block vectors [S, H] and [T, H]: how many of the longer text have a counterpart."""
    if left is None or right is None:
        return resemblance >= _WITHOUT_BLOCKS
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    nearest = (longer @ shorter.T).max(axis=1)
    return float((nearest >= LEAST_COSINE).mean()) > LEAST_SHARE


def _candidates(connection: Connection, signature: UInt32) -> list[tuple[int, float]]:
    """Return id and estimated resemblance of candidate texts, best first."""
    shared = Counter[int]()
    for key in band_keys(signature):
        shared.update(row[0] for row in connection.execute(_TEXTS_OF_BAND, (key, _FROM_BAND)))
    first = sorted(shared, key=lambda text_id: (-shared[text_id], text_id))[:_COMPARED]
    if not first:
        return []
    rows = connection.execute(_SIGNATURES, (vector_id_list(first),)).fetchall()
    estimated = resemblances(signature, [unpack(content) for _, content in rows]).tolist()
    found = [
        (text_id, resemblance)
        for (text_id, _), resemblance in zip(rows, estimated, strict=True)
        if resemblance >= _LEAST_RESEMBLANCE
    ]
    return sorted(found, key=lambda candidate: (-candidate[1], candidate[0]))[:_CONFIRMED]


def _blocks(store: Connection, vector_ids: Sequence[int]) -> Float32 | None:
    """Return the block vectors of the first of these documents that has some; None if damaged."""
    rows = store.execute(_FIRST_BLOCKS, (vector_id_list(vector_ids),)).fetchall()
    try:
        found = list(read_block_vectors(rows).values())
    except (TypeError, ValueError):
        return None
    return found[0].vectors if found else None


def _add_documents(connection: Connection, vector_ids: Iterable[int]) -> Sequence[int]:
    """Add documents that are to be looked at; known ones, and all copies of them, again.

    Returns:
        All that are to be looked at.
    """
    vector_ids = set(vector_ids)
    copies = connection.execute(_WITH_COPIES, (vector_id_list(vector_ids),))
    again = sorted(vector_ids.union(row[0] for row in copies))
    _remove_documents(connection, again)
    connection.executemany(_INSERT_DOCUMENT, [(vector_id,) for vector_id in again])
    return again


def _add_text(
    connection: Connection, store: Connection, vector_id: int, content: bytes, signature: UInt32
) -> int:
    """Add the text of a document, by its content hash; return its id.

    It is in the families of its near-duplicates, or in a new one.
    """
    known = connection.execute(_TEXT_OF_CONTENT, (content,)).fetchone()
    if known is not None:
        text_id, families = int(known[0]), {known[1]}
    else:
        links = _confirmed_links(connection, store, vector_id, signature)
        values = (content, vector_id, pack(signature))
        text_id = int(connection.execute(_INSERT_TEXT, values).fetchone()[0])
        connection.executemany(_INSERT_BAND, [(key, text_id) for key in band_keys(signature)])
        pairs = [pair for other in links for pair in ((text_id, other), (other, text_id))]
        connection.executemany(_INSERT_LINK, pairs)
        families = {connection.execute(_FAMILY_OF, (link,)).fetchone()[0] for link in links}
    number, *joined = sorted({vector_id, *families})
    connection.executemany(_JOIN_FAMILY, [(number, family) for family in joined])
    return text_id


def _remove_documents(connection: Connection, vector_ids: Sequence[int]) -> None:
    """Remove documents, and the texts that no document has any more; families may split."""
    id_list = vector_id_list(vector_ids)
    texts = [row[0] for row in connection.execute(_TEXTS_OF_DOCUMENTS, (id_list,))]
    connection.execute(_REMOVE_DOCUMENTS, (id_list,))
    parted = set[int]()
    for text_id in texts:
        found = connection.execute(_WITHOUT_DOCUMENT, (text_id,)).fetchone()
        if found is not None:
            parted.update(_remove_text(connection, text_id, *found))
    parted.update(row[0] for row in connection.execute(_NUMBERED_BY, (id_list,)))
    while parted:
        start = parted.pop()
        part = [row[0] for row in connection.execute(_REACHED, (start,))]
        connection.execute(_NUMBER, (vector_id_list(part),))
        parted.difference_update(part)


def _remove_text(connection: Connection, text_id: int, signature: bytes) -> list[int]:
    """Remove a text; return those that were linked to it."""
    links = [row[0] for row in connection.execute(_LINKED, (text_id,))]
    connection.executemany(_REMOVE_LINK, [(text_id, other) for other in links])
    connection.executemany(_REMOVE_LINK, [(other, text_id) for other in links])
    keys = band_keys(unpack(signature))
    connection.executemany(_REMOVE_BAND, [(key, text_id) for key in keys])
    connection.execute(_REMOVE_TEXT, (text_id,))
    return links


class Families(Follower):
    """The families of an open store. Safe to use from many threads."""

    TASK = "looking for near-duplicates"
    _add = staticmethod(_add_documents)
    _remove = staticmethod(_remove_documents)

    def __init__(
        self,
        truth: Connections,
        store: Path,
        common: CommonTexts,
        *,
        find: bool,
        read_only: bool,
        shared: Connections | None = None,
    ) -> None:
        """Follow the store at a path; `DocumentStore.families` is one.

        Without `find`, near-duplicates of documents that are put are not looked for. The tables are
        in a file next to the store, or `shared` by several servers.
        """
        path = store.with_name(FAMILIES_FILE)
        super().__init__(
            truth,
            path,
            FAMILIES,
            rule=signing_rule(),
            at_once=find,
            read_only=read_only,
            shared=shared,
        )
        self._common = common

    def of(self, vector_ids: Iterable[int]) -> dict[int, int]:
        """Return the number of the family of each of these documents that is in one."""
        id_list = vector_id_list(vector_ids)
        return dict(self.read_rows(_OF_DOCUMENTS, id_list))

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
        id_list = vector_id_list(set(numbers))
        rows = self.read_rows(_VECTOR_IDS, id_list)
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
        copies = {row[0] for row in self.read_rows(_COPIES, *vector_ids)}
        members = vector_id_list(self.vector_ids(numbers).tolist())
        rows = self._truth.read_rows(_PAGE, members, after, limit)
        return numbers[0], [Member(name, title, number in copies) for name, title, number in rows]

    def largest(self, limit: int) -> list[Family]:
        """Return the families with the most documents, largest first; reads all of them."""
        found = []
        for number, documents, texts in self.read_rows(_LARGEST, limit):
            members = vector_id_list(self.vector_ids([number]).tolist())
            ((first,),) = self._truth.read_rows(_FIRST, members)
            if first is not None:
                found.append(Family(number, documents, texts, first))
        return found

    def totals(self) -> tuple[int, int]:
        """Return how many families there are, and how many documents are in them; reads all."""
        ((families, documents),) = self.read_rows(_TOTALS)
        return int(families), int(documents)

    def _stored(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Return the vector ids of stored documents by id."""
        return dict(self._truth.read_rows(_OF_IDS, document_id_list(document_ids)))

    def _clear(self, connection: Connection) -> None:
        for table in ("document_texts", "texts", "text_bands", "text_links"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608

    def _rest(self, limit: int, after: int = 0) -> Sequence[int]:
        with self._connections().reading() as connection:
            return [row[0] for row in connection.execute(_NEXT_PENDING, (after, limit))]

    def _derive(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        """Sign the texts of documents, and link them."""
        pending = connection.execute(_STILL_PENDING, (vector_id_list(vector_ids),))
        wanted = vector_id_list(row[0] for row in pending)
        with self._truth.reading() as store:
            common = self._common.read(store)
            for vector_id, content, text in store.execute(_TEXTS, (wanted,)).fetchall():
                if isinstance(text, str):  # else it is damaged
                    signature = sign(text, common)
                    text_id = _add_text(connection, store, vector_id, content, signature)
                    connection.execute(_SET_TEXT, (text_id, vector_id))

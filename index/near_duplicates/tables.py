"""The tables of near-duplicates; each function works inside a transaction of the store.

texts           every different text that is stored: its content hash, its signature, its family
document_texts  the text of each document that was looked at
text_bands      the bands of the signatures, by which near-duplicates are found
text_links      pairs of texts that were confirmed to be near-duplicates, in both directions
family_rule     one row: how the signatures were made

Copies have one text, so that they are a family at once, and thousands of them cost no more than
one. A family is a connected component of the links; its number is the least text id in it.
"""

import logging
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from encoder.arrays import Float32, UInt32
from index.errors import StoreError
from index.near_duplicates.signatures import band_keys, pack, resemblances, signing_rule, unpack
from index.sqlite.block_vectors import read_block_vectors

_log = logging.getLogger(__name__)

LEAST_SHARE = 0.5  # of the blocks of the longer text must be exceeded
LEAST_COSINE = 0.75  # between a block and its counterpart
_LEAST_RESEMBLANCE = 0.2  # copies with a fifth of the words changed have 0.33
_WITHOUT_BLOCKS = 0.5  # resemblance that suffices without block vectors
_FROM_BAND = 256
_COMPARED = 64
_CONFIRMED = 16

_TEXTS_OF_BAND = """
SELECT text_id FROM text_bands WHERE band = ? ORDER BY text_id LIMIT ?"""
_SIGNATURE = """
SELECT signature FROM texts WHERE text_id = ?"""
_BLOCKS_OF_DOCUMENT = """
SELECT vector_id, offsets, vectors FROM block_vectors WHERE vector_id = ?"""
_BLOCKS_OF_TEXT = """
SELECT vector_id, offsets, vectors FROM document_texts JOIN block_vectors USING (vector_id)
WHERE text_id = ? ORDER BY vector_id LIMIT 1"""


@dataclass(frozen=True, slots=True)
class SignedText:
    """The text of a stored document: its content hash and its signature."""

    vector_id: int
    content_hash: bytes
    signature: UInt32


def confirmed_links(connection: sqlite3.Connection, vector_id: int, signature: UInt32) -> list[int]:
    """Return the ids of the texts that are near-duplicates of a text.

    Args:
        connection: inside a transaction.
        vector_id: of a stored document of this text, whose block vectors are read.
        signature: of the text; an empty one has no near-duplicates.
    """
    candidates = _candidates(connection, signature)
    if not candidates:
        return []
    blocks = _blocks(connection, _BLOCKS_OF_DOCUMENT, vector_id)
    return sorted(
        text_id
        for text_id, resemblance in candidates
        if _confirms(resemblance, blocks, _blocks(connection, _BLOCKS_OF_TEXT, text_id))
    )


def shared_share(left: Float32, other: Float32) -> float:
    """Return the share of the blocks of the longer text that have a counterpart in the shorter.

    Args:
        one: [S, H] block vectors, unit norm.
        other: [T, H] of the other text.
    """
    longer, shorter = (left, other) if len(left) >= len(other) else (other, left)
    nearest = (longer @ shorter.T).max(axis=1)
    return float((nearest >= LEAST_COSINE).mean())


def _confirms(resemblance: float, blocks: Float32 | None, others: Float32 | None) -> bool:
    if blocks is None or others is None:
        return resemblance >= _WITHOUT_BLOCKS
    return shared_share(blocks, others) > LEAST_SHARE


def _candidates(connection: sqlite3.Connection, signature: UInt32) -> list[tuple[int, float]]:
    """Return id and estimated resemblance of candidate texts, best first."""
    shared = Counter[int]()
    for key in band_keys(signature):
        shared.update(row[0] for row in connection.execute(_TEXTS_OF_BAND, (key, _FROM_BAND)))
    first = sorted(shared, key=lambda text_id: (-shared[text_id], text_id))[:_COMPARED]
    if not first:
        return []
    known: list[tuple[int, UInt32]] = []
    for text_id in first:
        row = connection.execute(_SIGNATURE, (text_id,)).fetchone()
        other = None if row is None else _readable(text_id, row[0])
        if other is not None and len(other):
            known.append((text_id, other))
    if not known:
        return []
    estimated = resemblances(signature, [other for _, other in known]).tolist()
    found = [
        (text_id, resemblance)
        for (text_id, _), resemblance in zip(known, estimated, strict=True)
        if resemblance >= _LEAST_RESEMBLANCE
    ]
    return sorted(found, key=lambda candidate: (-candidate[1], candidate[0]))[:_CONFIRMED]


def _readable(text_id: int, content: bytes) -> UInt32 | None:
    """Read a stored signature; None for a damaged one, which no document is refused for.

    Such a text is in no family with later ones until it is repaired.
    """
    try:
        return unpack(content)
    except StoreError as error:
        _log.warning("text %d: %s", text_id, error)
        return None


def _blocks(connection: sqlite3.Connection, statement: str, number: int) -> Float32 | None:
    """Return the block vectors of a document or text; None where none are stored, or damaged."""
    rows = connection.execute(statement, (number,)).fetchall()
    try:
        found = list(read_block_vectors(rows).values())
    except (TypeError, ValueError):
        return None
    return found[0].vectors if found else None


FAMILY_SCHEMA = (
    """
CREATE TABLE texts (
    text_id INTEGER PRIMARY KEY,
    content_hash BLOB NOT NULL UNIQUE,
    family INTEGER NOT NULL,
    signature BLOB NOT NULL
)""",
    "CREATE INDEX texts_by_family ON texts (family)",
    """
CREATE TABLE document_texts (
    vector_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    text_id INTEGER NOT NULL
)""",
    "CREATE INDEX document_texts_by_text ON document_texts (text_id)",
    """
CREATE TABLE text_bands (
    band INTEGER NOT NULL,
    text_id INTEGER NOT NULL,
    PRIMARY KEY (band, text_id)
) WITHOUT ROWID""",
    """
CREATE TABLE text_links (
    text_id INTEGER NOT NULL,
    other INTEGER NOT NULL,
    PRIMARY KEY (text_id, other)
) WITHOUT ROWID""",
    "CREATE TABLE family_rule (rule TEXT NOT NULL)",
)
FAMILY_TABLES = ("document_texts", "texts", "text_bands", "text_links", "family_rule")

_TEXT_OF_CONTENT = """
SELECT text_id FROM texts WHERE content_hash = ?"""
# A new family.
_INSERT_TEXT = """
INSERT OR IGNORE INTO texts (text_id, content_hash, family, signature)
SELECT new, ?, new, ? FROM (SELECT coalesce(max(text_id), 0) + 1 AS new FROM texts)"""
_INSERT_DOCUMENT_TEXT = """
INSERT OR IGNORE INTO document_texts (vector_id, text_id)
SELECT ?, text_id FROM texts WHERE content_hash = ?"""
_SET_FAMILY = """
UPDATE texts SET family = ? WHERE text_id = ?"""
_INSERT_BAND = """
INSERT OR IGNORE INTO text_bands (band, text_id) VALUES (?, ?)"""
_INSERT_LINK = """
INSERT OR IGNORE INTO text_links (text_id, other) VALUES (?, ?)"""
_FAMILY_OF = """
SELECT family FROM texts WHERE text_id = ?"""
_JOIN_FAMILY = """
UPDATE texts SET family = ? WHERE family = ?"""
_TEXTS_OF_DOCUMENTS = """
SELECT DISTINCT text_id FROM document_texts
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_UNLINK = """
DELETE FROM document_texts WHERE text_id = ?"""
_WITHOUT_DOCUMENT = """
SELECT family, signature FROM texts WHERE text_id = ?1
AND NOT EXISTS (SELECT 1 FROM document_texts WHERE text_id = ?1)"""
_LINKED = """
SELECT other FROM text_links WHERE text_id = ?"""
_REMOVE_LINK = """
DELETE FROM text_links WHERE text_id = ? AND other = ?"""
_REMOVE_BAND = """
DELETE FROM text_bands WHERE band = ? AND text_id = ?"""
_REMOVE_BANDS = """
DELETE FROM text_bands WHERE text_id = ?"""  # reads all of them
_REMOVE_TEXT = """
DELETE FROM texts WHERE text_id = ?"""
_OF_FAMILY = """
SELECT text_id FROM texts WHERE family = ?"""


def make_family_tables(connection: sqlite3.Connection) -> None:
    """Create the tables empty, replacing existing ones: no text is signed then."""
    for name in FAMILY_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in FAMILY_SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO family_rule VALUES (?)", (signing_rule(),))


def follow_rule(connection: sqlite3.Connection) -> bool:
    """Return whether the signatures were made by the present rule."""
    return connection.execute("SELECT rule FROM family_rule").fetchall() == [(signing_rule(),)]


def add_texts(connection: sqlite3.Connection, signed: Iterable[SignedText]) -> None:
    """Add the texts of inserted documents. Known ones stay as they are."""
    short: list[SignedText] = []  # they can have no near-duplicates
    for text in signed:
        if len(text.signature):
            _add_text(connection, text)
            connection.execute(_INSERT_DOCUMENT_TEXT, (text.vector_id, text.content_hash))
        else:
            short.append(text)
    connection.executemany(
        _INSERT_TEXT, [(text.content_hash, pack(text.signature)) for text in short]
    )
    connection.executemany(
        _INSERT_DOCUMENT_TEXT, [(text.vector_id, text.content_hash) for text in short]
    )


def _add_text(connection: sqlite3.Connection, text: SignedText) -> None:
    signature = text.signature
    if connection.execute(_TEXT_OF_CONTENT, (text.content_hash,)).fetchone():
        return
    links = confirmed_links(connection, text.vector_id, signature)
    cursor = connection.execute(_INSERT_TEXT, (text.content_hash, pack(signature)))
    text_id = int(cursor.lastrowid or 0)
    connection.executemany(_INSERT_BAND, [(key, text_id) for key in band_keys(signature)])
    connection.executemany(_INSERT_LINK, [(text_id, other) for other in links])
    connection.executemany(_INSERT_LINK, [(other, text_id) for other in links])
    families = {connection.execute(_FAMILY_OF, (link,)).fetchone()[0] for link in links}
    for joined in sorted({text_id, *families})[1:]:
        connection.execute(_JOIN_FAMILY, (min(families), joined))


def texts_of_documents(connection: sqlite3.Connection, vector_ids: str) -> list[int]:
    """Return the ids of the texts of documents, given as a JSON array of vector ids."""
    return [row[0] for row in connection.execute(_TEXTS_OF_DOCUMENTS, (vector_ids,))]


def forget_texts(connection: sqlite3.Connection, vector_ids: str) -> None:
    """Forget the texts of documents, given as `texts_of_documents`, and of all copies of them.

    They are then as if they had never been looked at.
    """
    texts = texts_of_documents(connection, vector_ids)
    connection.executemany(_UNLINK, [(text_id,) for text_id in texts])
    remove_texts(connection, texts)


def remove_texts(connection: sqlite3.Connection, text_ids: Iterable[int]) -> None:
    """Remove those of these texts that no document has any more; families may split."""
    for text_id in text_ids:
        found = connection.execute(_WITHOUT_DOCUMENT, (text_id,)).fetchone()
        if found is not None:
            _remove_text(connection, text_id, *found)


def _remove_text(
    connection: sqlite3.Connection, text_id: int, family: int, signature: bytes
) -> None:
    links = _linked(connection, text_id)
    connection.executemany(_REMOVE_LINK, [(text_id, other) for other in links])
    connection.executemany(_REMOVE_LINK, [(other, text_id) for other in links])
    known = _readable(text_id, signature)
    if known is None:
        connection.execute(_REMOVE_BANDS, (text_id,))
    else:
        connection.executemany(_REMOVE_BAND, [(key, text_id) for key in band_keys(known)])
    connection.execute(_REMOVE_TEXT, (text_id,))
    parts = _parts(connection, links)
    if len(parts) > 1 or family == text_id:
        for part in parts[:-1]:
            _renumber(connection, part)
        rest = {row[0] for row in connection.execute(_OF_FAMILY, (family,))}
        _renumber(connection, rest.difference(*parts[:-1]))


def _parts(connection: sqlite3.Connection, texts: Sequence[int]) -> list[set[int]]:
    """Return the components that linked texts of a removed text fall into.

    The last one may be incomplete: it is searched only until it is known to be one.
    """
    parts: list[set[int]] = []
    left = set(texts)
    while left:
        start = min(left)
        reached, edge = {start}, [start]
        while edge and not left <= reached:
            new = [linked for text in edge for linked in _linked(connection, text)]
            edge = [linked for linked in dict.fromkeys(new) if linked not in reached]
            reached.update(edge)
        left -= reached
        parts.append(reached)
    return parts


def _renumber(connection: sqlite3.Connection, part: set[int]) -> None:
    connection.executemany(_SET_FAMILY, [(min(part), text_id) for text_id in part])


def _linked(connection: sqlite3.Connection, text_id: int) -> list[int]:
    return [row[0] for row in connection.execute(_LINKED, (text_id,))]

"""The common text of an open store: measured, and kept up to date.

The table `common_text` has one row: the common runs, those that are changing, and what they were
measured on. What is missing or damaged is measured again.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from encoder.alignment.space import COMMON_HUBNESS, AlignedBlocks, choose_blocks
from encoder.arrays import Bool, Int64, UInt64
from encoder.terms.segmentation import words_of
from index.common_text.runs import NO_COMMON_TEXT, CommonText, find_common_runs
from index.lexical.terms import hash_words
from index.progress import Progress
from index.sqlite.connections import vector_id_list
from index.store.database import Connection, Connections
from index.store.rows import advance_sequence, revise

MAX_DRIFT = 0.2  # share of the documents that may change before common text is measured again
FOLLOWED = 500  # documents of a collection in which each write looks at the drift
_LEAST_CHANGES = 5
_SAMPLE = 5_000  # documents whose runs are held in memory
_DOCUMENTS_A_TRANSACTION = 64
_ROWS_A_READ = 256

COMMON_TEXT_SCHEMA = """
CREATE TABLE common_text (
    version INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    runs BLOB NOT NULL,
    changing BLOB NOT NULL,
    checksum INTEGER NOT NULL
)"""
_VERSION = """
SELECT version FROM common_text"""
_ROW = """
SELECT version, runs, changing, checksum FROM common_text"""
_MEASURED_ON = """
SELECT documents, last_id, length(runs) / 8, length(changing) FROM common_text"""
_INSERT = """
INSERT INTO common_text (version, documents, last_id, runs, changing, checksum)
VALUES (?, ?, ?, ?, ?, ?)"""
_SETTLE = """
UPDATE common_text SET changing = ?, checksum = ?, version = version + 1 WHERE version = ?"""
_NUMBER = """
SELECT count(*) FROM (SELECT 1 FROM documents LIMIT ?) AS counted"""
_LAST_ID = """
SELECT coalesce(max(vector_id), 0) FROM documents"""
_IDS = """
SELECT vector_id FROM documents ORDER BY vector_id"""
_TEXTS = """
SELECT vector_id, text FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """How much of a text is common.

    Attributes:
        share: of its words.
        blocks: Bool[S], of each sentence block that is aligned whether most of its words are.
    """

    share: float
    blocks: Bool


def mark(text: str, offsets: Int64 | None, common: CommonText) -> Marks | None:
    """Return the marks of a text with sentence blocks at Int64[S, 2]; None if none counts so."""
    found = common.find(hash_words(words_of(text))) if len(common) else None
    if found is None:
        return None
    places = np.zeros((0, 2), dtype=np.int64) if offsets is None else offsets
    places = places[choose_blocks(len(places))]
    before = np.concatenate([[0], np.cumsum(found)])
    blocks = np.zeros(len(places), dtype=np.bool_)
    start = done = 0
    for row, (first, end) in enumerate(places.tolist()):
        start += len(words_of(text[done:first]))
        stop = start + len(words_of(text[first:end]))
        held = before[[min(start, len(found)), min(stop, len(found))]]
        blocks[row] = 2 * (held[1] - held[0]) > max(stop - start, 1)
        start, done = stop, end
    return Marks(float(found.mean()), blocks)


def without_common(aligned: AlignedBlocks, marks: Marks | None) -> AlignedBlocks:
    """Let those blocks of a document that are common text match nothing."""
    if marks is None or len(marks.blocks) != len(aligned) or not marks.blocks.any():
        return aligned
    hubness = np.where(marks.blocks, np.float32(COMMON_HUBNESS), aligned.hubness)
    return replace(aligned, hubness=hubness)


class CommonTexts:
    """The common text of an open store. Safe to use from many threads."""

    def __init__(self, connections: Connections) -> None:
        """Use the connections of a store; `DocumentStore.common_text` is one."""
        self._connections = connections
        self._refreshing = threading.Lock()
        self._known = NO_COMMON_TEXT

    def read(self, connection: Connection | None = None) -> CommonText:
        """Return the present common text; without a connection in a transaction of its own."""
        if connection is None:
            with self._connections.reading() as connection:
                return self.read(connection)
        row = connection.execute(_VERSION).fetchone()
        known = self._known
        if (0 if row is None else row[0]) != known.version:
            self._known = known = read_common_text(connection)
        return known

    def has_drifted(self, *, following: bool = False) -> bool:
        """Return whether so many documents came and went that it should be measured again.

        Args:
            following: of large collections, return False.
        """
        with self._connections.reading() as connection:
            most = FOLLOWED + 1 if following else 2**62
            (documents,) = connection.execute(_NUMBER, (most,)).fetchone()
            if following and documents > FOLLOWED:
                return False
            measured = connection.execute(_MEASURED_ON).fetchone()
            before, last_id, runs, changing = measured or (0, 0, 0, 0)
            damaged = runs != len(self.read(connection))
            added = max(0, connection.execute(_LAST_ID).fetchone()[0] - last_id)
        drift = added + max(0, before + added - documents)
        return bool(changing) or damaged or drift >= max(_LEAST_CHANGES, MAX_DRIFT * documents)

    def refresh(self, progress: Progress, stop: Callable[[], bool]) -> bool:
        """Measure the common text, and revise the documents that it changes.

        Documents may be put and deleted meanwhile. A pass that ends early because `stop` returns
        true, or is killed, is repeated by the next.

        Args:
            progress: advances by each document that is read.
            stop: whether to end early.

        Returns:
            Whether documents were revised.
        """
        with self._refreshing:
            ids = [row[0] for row in self._connections.read_rows(_IDS)]
            progress.started("looking for common text", len(ids))
            step = -(-len(ids) // _SAMPLE) or 1
            runs = find_common_runs(words for _, words in self._hashed_words(ids[::step]))
            with self._connections.writing() as connection:
                before = read_common_text(connection)
                changing = np.union1d(before.changing, np.setxor1d(before.runs, runs))
                common = CommonText(runs, changing, before.version + 1)
                _write(connection, common, len(ids), max(ids, default=0))
            if not len(changing):
                return False
            affected: list[int] = []
            for vector_id, words in self._hashed_words(ids):
                if stop():
                    return False
                if common.is_changing(words):
                    affected.append(vector_id)
            for start in range(0, len(affected), _DOCUMENTS_A_TRANSACTION):
                if stop():
                    return True
                some = affected[start : start + _DOCUMENTS_A_TRANSACTION]
                with self._connections.writing() as connection:
                    revise(connection, some, advance_sequence(connection))
                progress.advanced(len(some))
            with self._connections.writing() as connection:
                settled = replace(common, changing=changing[:0])
                values = (b"", _checksum(settled), common.version)
                connection.execute(_SETTLE, values)
            return bool(affected)

    def _hashed_words(self, ids: Sequence[int]) -> Iterator[tuple[int, UInt64]]:
        for start in range(0, len(ids), _ROWS_A_READ):
            some = vector_id_list(ids[start : start + _ROWS_A_READ])
            for vector_id, text in self._connections.read_rows(_TEXTS, some):
                if isinstance(text, str):  # else it is damaged
                    yield vector_id, hash_words(words_of(text))


def read_common_text(connection: Connection) -> CommonText:
    """Read the common text; a missing or damaged row reads as none, and is measured again."""
    row = connection.execute(_ROW).fetchone()
    if row is None:
        return NO_COMMON_TEXT
    version, *contents, checksum = row
    none = NO_COMMON_TEXT.runs
    try:
        runs, changing = (np.frombuffer(content, dtype="<u8") for content in contents)
    except (TypeError, ValueError):
        return CommonText(none, none, version)
    found = CommonText(runs, changing, version)
    return found if _checksum(found) == checksum else CommonText(none, none, version)


def _write(connection: Connection, common: CommonText, documents: int, last_id: int) -> None:
    connection.execute("DELETE FROM common_text")
    contents = (_pack(common.runs), _pack(common.changing))
    values = (common.version, documents, last_id, *contents, _checksum(common))
    connection.execute(_INSERT, values)


def _pack(runs: UInt64) -> bytes:
    return runs.astype("<u8").tobytes()


def _checksum(common: CommonText) -> int:
    return crc32(_pack(common.changing), crc32(_pack(common.runs)))

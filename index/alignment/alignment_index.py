"""The alignment index of a store: blocks of stored documents, ready to be aligned with a query.

The space is stored first, then every document is projected into it next to the former rows, and
only then is it used: searches never wait, and a pass that was killed goes on where it was.

documents        which documents have block vectors
aligned_blocks   their blocks in a space, from which they are aligned; those of common text match
                 nothing; and what share of their words is common text
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32, Int64
from index.alignment.spaces import (
    find_space,
    fit_to_documents,
    insert_space,
    load_space,
)
from index.common_text.collection import CommonTexts, mark, without_common
from index.common_text.runs import NO_COMMON_TEXT, CommonText
from index.errors import DOCTOR, StoreError
from index.followers import Follower
from index.progress import Progress, SilentProgress
from index.sqlite.block_vectors import read_block_vectors
from index.sqlite.connections import DatabaseFormat, vector_id_list
from index.store.change_log import count_changes
from index.store.database import Connection, Connections

BLOCKS_FILE = "blocks.sqlite3"
BLOCKS = DatabaseFormat(
    "aligned blocks",
    application_id=0x4C4D424C,
    version=4,
    schema="""
CREATE TABLE documents (vector_id INTEGER PRIMARY KEY);
CREATE TABLE aligned_blocks (
    vector_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    space_id INTEGER NOT NULL,
    share REAL NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (vector_id, space_id)
);
""",
)
_ROWS_A_TRANSACTION = 512
_WITH_BLOCKS = """
SELECT vector_id FROM block_vectors WHERE vector_id IN (SELECT value FROM json_each(?))"""
_BLOCK_VECTORS = """
SELECT b.vector_id, b.offsets, b.vectors, d.text
FROM block_vectors b JOIN documents d USING (vector_id)
WHERE b.vector_id IN (SELECT value FROM json_each(?))"""
_INSERT_DOCUMENT = """
INSERT INTO documents (vector_id) VALUES (?)"""
_SHARE = """
SELECT max(share) FROM aligned_blocks WHERE vector_id = ?"""
_REMOVE_DOCUMENTS = """
DELETE FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""
_INSERT_BLOCKS = """
INSERT OR REPLACE INTO aligned_blocks (vector_id, space_id, share, content)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM documents WHERE vector_id = ?1)"""
_BLOCKS = """
SELECT vector_id, content FROM aligned_blocks
WHERE vector_id IN (SELECT value FROM json_each(?)) AND space_id = ?"""
_HELD = """
SELECT vector_id FROM aligned_blocks
WHERE vector_id IN (SELECT value FROM json_each(?)) AND space_id = ?"""
_SCALE = np.dtype("<f4")
_SPACES = """
SELECT space_id FROM alignment_spaces WHERE current >= 0"""
_SPACE = """
SELECT 1 FROM alignment_spaces WHERE space_id = ?"""
_FITTED_TO = """
SELECT documents, sequence FROM alignment_spaces WHERE current = 1"""
_MAKE_CURRENT = """
UPDATE alignment_spaces SET current = CASE WHEN space_id = ?1 THEN 1 ELSE -1 END
WHERE EXISTS (SELECT 1 FROM alignment_spaces WHERE space_id = ?1)"""
_DROP_SPACES = """
DELETE FROM alignment_spaces
WHERE space_id < (SELECT max(space_id) FROM alignment_spaces WHERE current < 0)"""
# In each of the spaces, of which there are two at most.
_PENDING = """
SELECT vector_id FROM documents d WHERE vector_id > ?1 AND (
    SELECT count(*) FROM aligned_blocks a
    WHERE a.vector_id = d.vector_id AND space_id IN (SELECT value FROM json_each(?2))
) < json_array_length(?2) ORDER BY vector_id LIMIT ?3"""
_DELETE_OTHERS = """
DELETE FROM aligned_blocks WHERE rowid IN (
    SELECT rowid FROM aligned_blocks WHERE space_id != ? LIMIT ?
)"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpaceInUse:
    """A space with its number in the store, and the common text of the collection."""

    space_id: int
    space: AlignmentSpace
    common: CommonText = NO_COMMON_TEXT


@dataclass(frozen=True, slots=True)
class AlignableDocuments:
    """Documents to align, as they were stored at one moment.

    Attributes:
        used: the space that their blocks are in.
        blocks: by vector id; documents without blocks are absent.
        shares: of the words, by vector id, that are common text; absent where it is not read.
    """

    used: SpaceInUse
    blocks: Mapping[int, AlignedBlocks]
    shares: Mapping[int, float] = field(default_factory=dict)

    @property
    def space(self) -> AlignmentSpace:
        """The space that the blocks are in."""
        return self.used.space

    def project(self, text: str, vectors: Float32, offsets: Int64) -> AlignedBlocks:
        """Project the block vectors [S, H] of another text, at the characters Int64[S, 2]."""
        return without_common(self.space.project(vectors), mark(text, offsets, self.used.common))


class AlignmentSpaces:
    """The spaces that the blocks of an open store are aligned in."""

    def __init__(self, truth: Connections, common: CommonTexts) -> None:
        """Read a store; `DocumentStore.alignment` does."""
        self._truth = truth
        self._common = common
        self._loaded: dict[int, AlignmentSpace] = {}  # two are in use at most

    def start_with(self, space: AlignmentSpace) -> None:
        """Use this space in a store that has none yet."""
        with self._truth.reading() as connection:
            if find_space(connection) is not None:
                return
        with self._truth.writing() as connection:
            insert_space(connection, space, fitted=False)

    def space(self) -> SpaceInUse | None:
        """Return the current space; None in a store that was never given one."""
        with self._truth.reading() as connection:
            return self._current(connection)

    @property
    def space_number(self) -> int:
        """The number of the current space; 0 in a store that was never given one."""
        with self._truth.reading() as connection:
            return find_space(connection) or 0

    def kept(self, space_id: int) -> AlignmentSpace | None:
        """Return a space by its number: the current, next or former one; None of others."""
        with self._truth.reading() as connection:
            known = connection.execute(_SPACE, (space_id,)).fetchone()
            return None if known is None else self._load(connection, space_id)

    def whiten(self, vectors: Float32) -> Float32:
        """Return document vectors [N, dimension] as they are compared: `AlignmentSpace.whiten`."""
        used = self.space()
        return vectors if used is None else used.space.whiten(vectors)

    def require_width(self, vectors: Iterable[Float32]) -> None:
        """Check block vectors [S, H] of documents that are to be put.

        Raises:
            ValueError: some have another width than the current space.
        """
        used = self.space()
        if used is not None:
            for rows in vectors:
                used.space.project(rows[:1])

    def drift(self) -> float:
        """Return how many documents came and went since the space was fitted, relative to then.

        Infinity for a space that was not fitted to the collection.
        """
        with self._truth.reading() as connection:
            documents, sequence = connection.execute(_FITTED_TO).fetchone() or (0, 0)
            if not documents:
                return float("inf")
            return sum(count_changes(connection, sequence, documents)) / documents

    def _next(self, progress: Progress, *, fit: bool) -> int | None:
        """Return the number of the next space; with `fit`, one is fitted to the collection."""
        with self._truth.reading() as store:
            following = find_space(store, current=False)
            fitted = None
            if fit and following is None:
                used = self._current(store)
                whitens = used is not None and used.space.documents is not None
                try:
                    fitted = fit_to_documents(store, progress, whitens=whitens)
                except ValueError as error:
                    raise StoreError(f"{self._truth.name}: {error}; {DOCTOR} --repair") from error
        if fitted is not None:
            with self._truth.writing() as store:
                if find_space(store, current=False) is None:  # else another server was first
                    insert_space(store, fitted, fitted=True)
                following = find_space(store, current=False)
        return following

    def _use(self, space_id: int) -> None:
        """Use a space from now on, if it is still there; of all others, keep the former one."""
        with self._truth.writing() as store:
            store.execute(_MAKE_CURRENT, (space_id,))
            store.execute(_DROP_SPACES)

    def _current(self, store: Connection) -> SpaceInUse | None:
        number = find_space(store)
        if number is None:
            return None
        return SpaceInUse(number, self._load(store, number), self._common.read(store))

    def _load(self, store: Connection, space_id: int) -> AlignmentSpace:
        loaded = self._loaded.get(space_id)
        if loaded is None:
            try:
                loaded = load_space(store, space_id)
            except ValueError as error:
                raise StoreError(f"{self._truth.name}: {error}; {DOCTOR} --repair") from error
            self._loaded = dict([*sorted(self._loaded.items())[-1:], (space_id, loaded)])
        return loaded

    def _projected(
        self, store: Connection, space: AlignmentSpace, vector_ids: Iterable[int]
    ) -> Iterator[tuple[int, float, AlignedBlocks]]:
        """Yield documents with the share of common text in their words, and their blocks.

        Damaged ones are left out.
        """
        common = self._common.read(store)
        # Texts are read where they are needed.
        statement = _BLOCK_VECTORS if len(common) else _BLOCK_VECTORS.replace("d.text", "''")
        rows = store.execute(statement, (vector_id_list(vector_ids),)).fetchall()
        for vector_id, offsets, vectors, text in rows:
            try:
                stored = read_block_vectors([(vector_id, offsets, vectors)])[vector_id]
            except (TypeError, ValueError) as error:
                _log.error("document of vector id %d: %s: %s --repair", vector_id, error, DOCTOR)
            else:
                marks = mark(str(text), stored.offsets, common)
                aligned = without_common(space.project(stored.vectors), marks)
                yield vector_id, 0.0 if marks is None else marks.share, aligned


class AlignmentIndex(AlignmentSpaces, Follower):
    """The alignment index of an open store. Safe to use from many threads."""

    TASK = "aligning documents"

    def __init__(
        self, truth: Connections, store: Path, common: CommonTexts, *, read_only: bool
    ) -> None:
        """Follow the store at a path; `DocumentStore.alignment` is one."""
        AlignmentSpaces.__init__(self, truth, common)
        Follower.__init__(self, truth, store.with_name(BLOCKS_FILE), BLOCKS, read_only=read_only)

    def read(
        self, vector_ids: Sequence[int], used: SpaceInUse | None = None
    ) -> AlignableDocuments | None:
        """Return the blocks of these documents in the current space; None if there is none.

        With the space that was current when others were read, it is not asked for again.
        """
        used = used or self.space()
        if used is None:
            return None
        rows = self.read_rows(_BLOCKS, vector_id_list(vector_ids), used.space_id)
        with self._noting_damage():
            found = {number: unpack(content, used.space.dimension) for number, content in rows}
        if len(found) < len(vector_ids):
            now = self.space()
            if now is not None and now.space_id != used.space_id:  # the rows may be deleted
                return self.read(vector_ids)
        return AlignableDocuments(used, found)

    def common_share(self, vector_id: int) -> float:
        """Return what share of the words of an aligned document is common text."""
        ((share,),) = self.read_rows(_SHARE, vector_id)
        return float(share or 0.0)

    def refresh(
        self, progress: Progress, *, fit: bool, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Project pending documents; with `fit`, first fit a new space to the collection.

        Searches use the former space until all documents are in the new one. A pass that is killed
        or stopped is continued by the next.

        Raises:
            StoreError: the file cannot be read or written, or block vectors are damaged.
        """
        following = self._next(progress, fit=fit)
        self.finish(progress, stop)
        if following is None or stop():
            return
        with self._following:  # what is put now is projected after the switch
            self.finish(SilentProgress())
            self._use(following)
        deleted = _ROWS_A_TRANSACTION
        while deleted and not stop():  # blocks in former spaces; writes wait for a few at a time
            with self.writing() as connection:
                values = (following, _ROWS_A_TRANSACTION)
                deleted = connection.execute(_DELETE_OTHERS, values).rowcount

    def _add(self, connection: Connection, vector_ids: Sequence[int]) -> Sequence[int]:
        """Add those that have block vectors; known ones are projected again."""
        rows = self._truth.read_rows(_WITH_BLOCKS, vector_id_list(vector_ids))
        self._remove(connection, vector_ids)
        connection.executemany(_INSERT_DOCUMENT, rows)
        return [row[0] for row in rows]

    def _remove(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        connection.execute(_REMOVE_DOCUMENTS, (vector_id_list(vector_ids),))

    def _rest(self, limit: int, after: int = 0) -> Sequence[int]:
        spaces = vector_id_list(row[0] for row in self._truth.read_rows(_SPACES))
        with self._connections().reading() as connection:
            return [row[0] for row in connection.execute(_PENDING, (after, spaces, limit))]

    def _derive(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        """Project documents into every space that they are not in; damaged ones are left out."""
        with self._truth.reading() as store:
            for (space_id,) in store.execute(_SPACES).fetchall():
                rows = connection.execute(_HELD, (vector_id_list(vector_ids), space_id))
                missing = set(vector_ids).difference(row[0] for row in rows)
                space = self._load(store, space_id)
                for vector_id, share, aligned in self._projected(store, space, missing):
                    values = (vector_id, space_id, share, pack(aligned))
                    connection.execute(_INSERT_BLOCKS, values)


class ProjectedBlocks(AlignmentSpaces):
    """Blocks that are projected from the store when they are read, where an engine has them."""

    def read(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        """Return the blocks of these documents in the current space; None if there is none."""
        with self._truth.reading() as store:
            used = self._current(store)
            if used is None:
                return None
            rows = list(self._projected(store, used.space, vector_ids))
            found = {vector_id: aligned for vector_id, _, aligned in rows}
            return AlignableDocuments(used, found, {n: share for n, share, _ in rows})

    def refresh(
        self, progress: Progress, *, fit: bool, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Use the next space, which with `fit` is first fitted to the collection.

        Raises:
            StoreError: the store cannot be read or written, or block vectors are damaged.
        """
        following = self._next(progress, fit=fit)
        if following is not None and not stop():
            self._use(following)


def pack(blocks: AlignedBlocks) -> bytes:
    """Return the blocks of a document as bytes."""
    arrays = (blocks.codes, blocks.scales.astype(_SCALE), blocks.hubness.astype(_SCALE))
    return b"".join(array.tobytes() for array in arrays)


def unpack(content: object, dimension: int) -> AlignedBlocks:
    """Return blocks of the dimension of a space that `pack` wrote.

    Raises:
        ValueError: they are damaged.
    """
    size = len(content) if isinstance(content, bytes) else 0
    rows, rest = divmod(size, dimension + 2 * _SCALE.itemsize)
    if not isinstance(content, bytes) or not rows or rest:
        raise ValueError("aligned blocks are damaged")
    codes = np.frombuffer(content, np.int8, rows * dimension).reshape(rows, dimension)
    numbers = np.frombuffer(content, _SCALE, offset=rows * dimension)
    return AlignedBlocks(codes, numbers[:rows], numbers[rows:])

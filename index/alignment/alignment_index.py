"""The alignment index of a store: blocks of stored documents, ready to be aligned with a query."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32, Int64
from index.alignment.refresh import refresh_alignment
from index.alignment.tables import (
    FittedSpace,
    SpaceRow,
    count_pending,
    find_space,
    insert_aligned_blocks,
    insert_space,
    load_space,
    read_aligned_blocks,
)
from index.common_text.collection import CommonTexts, mark, without_common
from index.common_text.runs import NO_COMMON_TEXT, CommonText
from index.errors import StoreError
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections

_ADDED_SINCE = """
SELECT count(*) FROM vectors WHERE sequence > ?"""
_NUMBER = """
SELECT count(*) FROM documents"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpaceInUse:
    """A space with its number in the store."""

    space_id: int
    space: AlignmentSpace


@dataclass(frozen=True, slots=True)
class AlignableDocuments:
    """Documents to align, as they were stored at one moment.

    Attributes:
        space: that their blocks are in.
        blocks: by vector id; documents without sound blocks are absent.
        common: the common text of the collection.
    """

    space: AlignmentSpace
    blocks: Mapping[int, AlignedBlocks]
    common: CommonText = NO_COMMON_TEXT

    def project(self, text: str, vectors: Float32, offsets: Int64 | None) -> AlignedBlocks:
        """Project the block vectors [S, H] of another text, at the characters Int64[S, 2].

        Without offsets all of its blocks count, those of common text as well.
        """
        marks = mark(text, offsets, self.common)
        return without_common(self.space.project(vectors), None if marks is None else marks.blocks)


class AlignmentIndex:
    """The alignment index of an open store. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, path: Path, common: CommonTexts) -> None:
        """Use the connections of the store at `path`; `SQLiteDocumentStore.alignment` is one."""
        self._connections = connections
        self._common = common
        self._path = path
        self._loading = threading.Lock()
        self._loaded: SpaceInUse | None = None

    def start_with(self, space: AlignmentSpace) -> None:
        """Use this space in a store that has none yet."""
        with self._connections.reading() as connection:
            if find_space(connection) is not None:
                return
        with self._connections.writing() as connection:
            insert_space(connection, FittedSpace(space), current=True)

    def space(self) -> SpaceInUse | None:
        """Return the current space; None in a store that was never given one."""
        with self._connections.reading() as connection:
            return self._current(connection)

    def read(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        """Return the blocks of these documents in the current space; None if there is none.

        Damaged rows are logged and left out: `longmatch doctor --repair` makes them again.
        """
        with self._connections.reading() as connection:
            used = self._current(connection)
            if used is None:
                return None
            dimension = used.space.dimension
            found, damaged = read_aligned_blocks(connection, used.space_id, dimension, vector_ids)
            common = self._common.read(connection)
        if damaged:
            _log.error(
                "%s: the aligned blocks of vector id %d and %d others are damaged: "
                "run longmatch doctor --repair",
                *(self._path, damaged[0], len(damaged) - 1),
            )
        return AlignableDocuments(used.space, found, common)

    def project(self, vectors: Mapping[str, Float32]) -> "ProjectedDocuments | None":
        """Project block vectors [S, H] of documents that are to be put; None without a space."""
        used = self.space() if vectors else None
        if used is None:
            return None
        blocks = {name: used.space.project(vector) for name, vector in vectors.items()}
        return ProjectedDocuments(used.space_id, blocks)

    def pending(self) -> int:
        """Count the documents whose block vectors are not in the current space."""
        with self._connections.reading() as connection:
            row = find_space(connection)
            return 0 if row is None else count_pending(connection, row.space_id)

    def has_next(self) -> bool:
        """Return whether a new space waits for documents to be projected into it."""
        with self._connections.reading() as connection:
            return find_space(connection, current=False) is not None

    def drift(self) -> float:
        """Return how many documents came and went since the space was fitted, relative to then.

        Infinity for a space that was not fitted to the collection.
        """
        with self._connections.reading() as connection:
            row = find_space(connection)
            if row is None or not row.documents:
                return float("inf")
            (added,) = connection.execute(_ADDED_SINCE, (row.sequence,)).fetchone()
            (number,) = connection.execute(_NUMBER).fetchone()
        removed = row.documents + added - number
        return float(added + max(0, removed)) / row.documents

    def refresh(
        self, progress: Progress, *, fit: bool, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Project pending documents; with `fit`, first fit a new space to the collection.

        Searches use the former space until all documents are in the new one. A pass that is killed
        or stopped is continued by the next.

        Raises:
            StoreError: the file cannot be read or written, or block vectors are damaged.
        """
        try:
            refresh_alignment(self._connections, progress, fit=fit, stop=stop)
        except ValueError as error:
            raise StoreError(f"{self._path}: {error}; run longmatch doctor --repair") from error

    def _current(self, connection: sqlite3.Connection) -> SpaceInUse | None:
        row = find_space(connection)
        if row is None:
            return None
        with self._loading:
            if self._loaded is None or self._loaded.space_id != row.space_id:
                self._loaded = self._load(connection, row)
            return self._loaded

    def _load(self, connection: sqlite3.Connection, row: SpaceRow) -> SpaceInUse:
        try:
            return SpaceInUse(row.space_id, load_space(connection, row.space_id))
        except ValueError as error:
            raise StoreError(f"{self._path}: {error}; run longmatch doctor --repair") from error


@dataclass(frozen=True, slots=True)
class ProjectedDocuments:
    """Documents that are to be put: their blocks in a space, by document id."""

    space_id: int
    blocks: Mapping[str, AlignedBlocks]

    def insert(self, connection: sqlite3.Connection, vector_ids: Mapping[str, int]) -> None:
        """Insert the blocks of those documents that were put, given by their new vector ids."""
        put = (
            (vector_ids[name], block) for name, block in self.blocks.items() if name in vector_ids
        )
        insert_aligned_blocks(connection, self.space_id, put)

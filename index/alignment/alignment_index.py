"""The alignment index of a store: blocks of stored documents, ready to be aligned with a query.

The space is stored first, then every document is projected into it next to the former rows, and
only then is it used: searches never wait, and a pass that was killed goes on where it was.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32, Int64
from index.alignment.refresh import fit_to_documents
from index.alignment.tables import (
    BLOCKS,
    FittedSpace,
    SpaceRow,
    add_documents,
    count_pending,
    delete_other_blocks,
    drop_other_spaces,
    find_space,
    insert_aligned_blocks,
    insert_space,
    load_space,
    make_current,
    next_pending,
    project_documents,
    read_aligned_blocks,
    remove_documents,
)
from index.common_text.collection import CommonTexts, mark, without_common
from index.common_text.runs import NO_COMMON_TEXT, CommonText
from index.errors import StoreError
from index.followers import FollowerFile
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections, vector_id_list

BLOCKS_FILE = "blocks.sqlite3"
_DOCUMENTS_A_TRANSACTION = 64
_ROWS_A_TRANSACTION = 512
_WITH_BLOCKS = """
SELECT vector_id FROM block_vectors WHERE vector_id IN (SELECT value FROM json_each(?))"""
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


class AlignmentIndex(FollowerFile):
    """The alignment index of an open store. Safe to use from many threads."""

    def __init__(
        self, truth: SQLiteConnections, store: Path, common: CommonTexts, *, read_only: bool
    ) -> None:
        """Follow the store at a path; `SQLiteDocumentStore.alignment` is one."""
        super().__init__(truth, store.with_name(BLOCKS_FILE), BLOCKS, read_only=read_only)
        self._common = common
        self._store = store
        self._loading = threading.Lock()
        self._loaded: SpaceInUse | None = None

    def start_with(self, space: AlignmentSpace) -> None:
        """Use this space in a store that has none yet."""
        with self._truth.reading() as connection:
            if find_space(connection) is not None:
                return
        with self._truth.writing() as connection:
            insert_space(connection, FittedSpace(space), current=True)

    def space(self) -> SpaceInUse | None:
        """Return the current space; None in a store that was never given one."""
        with self._truth.reading() as connection:
            return self._current(connection)

    def read(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        """Return the blocks of these documents in the current space; None if there is none.

        Damaged rows are logged, left out and made again.
        """
        with self._truth.reading() as connection:
            used = self._current(connection)
            common = self._common.read(connection)
        if used is None:
            return None
        dimension = used.space.dimension
        with self.reading() as connection:
            found, damaged = read_aligned_blocks(connection, used.space_id, dimension, vector_ids)
        if len(found) < len(vector_ids):
            now = self.space()
            if now is not None and now.space_id != used.space_id:  # the rows may be deleted
                return self.read(vector_ids)
        if damaged:
            _log.error(
                "%s: the aligned blocks of vector id %d and %d others are damaged",
                *(self.path, damaged[0], len(damaged) - 1),
            )
            if not self._read_only:
                self._project(damaged, used)
        return AlignableDocuments(used.space, found, common)

    def require_width(self, vectors: Iterable[Float32]) -> None:
        """Check block vectors [S, H] of documents that are to be put.

        Raises:
            ValueError: some have another width than the current space.
        """
        used = self.space()
        if used is not None:
            for rows in vectors:
                used.space.project(rows[:1])

    def pending(self) -> int:
        """Count the documents whose block vectors are not in the current space."""
        used = self.space()
        if used is None:
            return 0
        with self.reading() as connection:
            return count_pending(connection, used.space_id)

    def has_next(self) -> bool:
        """Return whether a new space waits for documents to be projected into it."""
        with self._truth.reading() as connection:
            return find_space(connection, current=False) is not None

    def drift(self) -> float:
        """Return how many documents came and went since the space was fitted, relative to then.

        Infinity for a space that was not fitted to the collection.
        """
        with self._truth.reading() as connection:
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
        with self._truth.reading() as store:
            following, current = find_space(store, current=False), find_space(store)
        try:
            if fit and following is None and (fitted := fit_to_documents(self._truth, progress)):
                with self._truth.writing() as store:
                    insert_space(store, fitted, current=False)
                    following = find_space(store, current=False)
            target = following or current
            if target is None:
                return
            with self._truth.reading() as store:
                used = self._load(store, target)
            self._project_pending(used, progress, stop)
            if stop():
                return
            if following is not None:
                self._switch(used)
            self._clean(used, stop)
        except ValueError as error:
            raise StoreError(f"{self._store}: {error}; run longmatch doctor --repair") from error

    def _project_pending(
        self, used: SpaceInUse, progress: Progress, stop: Callable[[], bool]
    ) -> None:
        with self.reading() as connection:
            pending = count_pending(connection, used.space_id)
        if not pending:
            return
        progress.started("aligning documents", pending)
        last = 0
        while not stop():
            ids = self._next(used, _DOCUMENTS_A_TRANSACTION, last)
            self._project(ids, used)
            progress.advanced(len(ids))
            if len(ids) < _DOCUMENTS_A_TRANSACTION:
                return  # documents that are put meanwhile would keep this loop going
            last = ids[-1]

    def _switch(self, used: SpaceInUse) -> None:
        """Use the next space, after projecting the documents that were put meanwhile."""
        with self._following:  # what is put now is projected after the switch
            while ids := self._next(used, _DOCUMENTS_A_TRANSACTION):
                self._project(ids, used)
            with self._truth.writing() as store:
                make_current(store, used.space_id)

    def _clean(self, used: SpaceInUse, stop: Callable[[], bool]) -> None:
        """Delete what belongs to former spaces, a little at a time: writes wait for each."""
        while not stop():
            with self.writing() as connection:
                deleted = delete_other_blocks(connection, used.space_id, _ROWS_A_TRANSACTION)
            if not deleted:
                with self._truth.writing() as store:
                    drop_other_spaces(store)
                return

    def _next(self, used: SpaceInUse, limit: int, after: int = 0) -> Sequence[int]:
        with self._connections().reading() as connection:
            return next_pending(connection, used.space_id, after, limit)

    def _project(self, vector_ids: Sequence[int], used: SpaceInUse) -> None:
        """Project the block vectors of documents into a space."""
        with self._following:  # what is read here is not revised before it is written
            with self._truth.reading() as store:
                projected = project_documents(store, used.space, vector_ids)
            with self.writing() as connection:
                insert_aligned_blocks(connection, used.space_id, projected)

    def _add(self, connection: sqlite3.Connection, vector_ids: Sequence[int]) -> Sequence[int]:
        rows = self._truth.read_rows(_WITH_BLOCKS, vector_id_list(vector_ids))
        found = sorted(row[0] for row in rows)
        remove_documents(connection, vector_ids)
        add_documents(connection, found)
        return found

    def _remove(self, connection: sqlite3.Connection, vector_ids: Sequence[int]) -> None:
        remove_documents(connection, vector_ids)

    def _rest(self, limit: int) -> Sequence[int]:
        used = self.space()
        return () if used is None else self._next(used, limit)

    def _work_off(self, vector_ids: Sequence[int]) -> None:
        used = self.space() if vector_ids else None
        if used is None:
            return
        try:
            for start in range(0, len(vector_ids), _DOCUMENTS_A_TRANSACTION):
                self._project(vector_ids[start : start + _DOCUMENTS_A_TRANSACTION], used)
        except ValueError as error:
            raise StoreError(f"{self._store}: {error}; run longmatch doctor --repair") from error

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
            raise StoreError(f"{self._store}: {error}; run longmatch doctor --repair") from error

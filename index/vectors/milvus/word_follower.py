"""Keeps the words of a store in a Milvus as the store has them.

The rows of Milvus name the change of the store that each is of. Opening compares them with the
store, row by row; after that, changes are followed by their number, so that one that failed is
repeated by the next, or by the next search. The store is the truth in any case: what is written
twice, or removed twice, does no harm.
"""

import logging
import threading

import numpy as np

from encoder.arrays import Int64
from index.errors import VectorEngineError
from index.lexical.tables import (
    TermStatistics,
    forget_removed,
    read_changed,
    read_removed,
    read_statistics,
    read_stored_terms,
)
from index.sqlite.connections import SQLiteConnections
from index.vectors.milvus.word_collection import WordCollection
from index.vectors.milvus.words_engine import WordsEngine

_DOCUMENTS_A_READ = 100

_log = logging.getLogger(__name__)


class WordFollower:
    """The collection of an open store, and what it has of the store. Safe to use from many threads.

    Attributes:
        problem: what Milvus failed in last; None while it works.
    """

    def __init__(
        self, connections: SQLiteConnections, engine: WordsEngine, *, read_only: bool
    ) -> None:
        """Use the connections of a store; nothing is opened yet. `read_only` writes nothing."""
        self.problem: str | None = None
        self._connections = connections
        self._engine = engine
        self._read_only = read_only
        self._updating = threading.Lock()
        self._collection: WordCollection | None = None
        self._identity = ""
        self._followed = 0  # changes of the store that Milvus has
        self._forgotten = 0  # removals up to this change
        self._stopping = threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether Milvus was compared with the store."""
        return self._collection is not None

    @property
    def unpublished(self) -> int:
        """How many changes there were since `flush`."""
        return max(0, self._followed - self._forgotten)

    def stop(self) -> None:
        """Let what is written end early, with an error."""
        self._stopping.set()

    def now(self) -> TermStatistics:
        """Return the state of the tables."""
        with self._connections.reading() as connection:
            return read_statistics(connection)

    def collection(self) -> WordCollection:
        """Return the collection once it has all that was acknowledged.

        Raises:
            StoreError: the store cannot be read.
            VectorEngineError: Milvus fails.
        """
        now = self.now()
        # The thread that holds the lock follows a change that was not yet acknowledged, unless a
        # former one failed.
        wait = self._collection is None or self.problem is not None
        if not self._is(now) and self._updating.acquire(blocking=wait):
            try:
                self._follow()
            finally:
                self._updating.release()
        return self._opened()

    def catch_up(self) -> None:
        """Bring Milvus to the present state of the store.

        Raises:
            StoreError, VectorEngineError: as `collection`.
        """
        with self._updating:
            self._follow()

    def check(self) -> None:
        """Ask Milvus whether it works; after a failure, compare it with the store again.

        Raises:
            StoreError, VectorEngineError: as `collection`.
        """
        with self._updating:
            try:
                if self._collection and (self.problem or not self._collection.exists()):
                    self._collection = None
            except VectorEngineError as error:
                self.problem = str(error)
                raise
            self._follow()

    def exists(self) -> bool:
        """Return whether there is a collection of this store.

        Raises:
            StoreError, VectorEngineError: as `collection`.
        """
        return self._engine.collection(self.now().identity).exists()

    def drop(self) -> None:
        """Drop the collection; it is filled again when it is next used.

        Raises:
            StoreError, VectorEngineError: as `collection`.
        """
        with self._updating:
            self._collection = None
            self._engine.collection(self.now().identity).drop()

    def flush(self) -> None:
        """Let Milvus write the words to its disk, and the store forget the removals that it has.

        Raises:
            StoreError, VectorEngineError: as `collection`.
        """
        self.collection().flush()
        followed = self._followed
        with self._connections.writing() as connection:
            forget_removed(connection, followed)
        self._forgotten = followed

    def _is(self, now: TermStatistics) -> bool:
        if self._collection is None:
            return False
        followed = (self._identity, self._followed) == (now.identity, now.changes)
        return self._read_only or followed

    def _opened(self) -> WordCollection:
        if self._collection is None:
            raise VectorEngineError(f"{self._engine.connection.address}: has no words")
        return self._collection

    def _follow(self) -> None:
        """Bring Milvus to the present state of the store; `_updating` is held."""
        try:
            now = self.now()
            if self._collection is None or self._identity != now.identity:
                self._open(now)
                self.problem = None
            if not self._read_only:
                self._write_changes()
        except VectorEngineError as error:
            self.problem = str(error)
            raise

    def _open(self, now: TermStatistics) -> None:
        """Open the collection, or make it, and bring it to the store, row by row."""
        collection = self._engine.open(now.identity, make=not self._read_only)
        if self._read_only:
            self._collection, self._identity = collection, now.identity
            return
        with self._connections.reading() as connection:
            ids, changes = read_changed(connection, -1)
        missing, superfluous = differing(ids, changes, *collection.held())
        if len(missing) > _DOCUMENTS_A_READ:
            _log.info("writing the words of %d documents to Milvus", len(missing))
        self._put(collection, missing)
        collection.remove(superfluous)
        if len(missing) + len(superfluous):
            collection.flush()
        self._collection, self._identity = collection, now.identity
        self._followed = self._forgotten = now.changes
        self._engine.drop_others(now.identity)

    def _write_changes(self) -> None:
        """Write what the store changed since, and remove what it removed."""
        collection = self._opened()
        with self._connections.reading() as connection:
            now = read_statistics(connection)
            if self._is(now):
                return
            changed, _ = read_changed(connection, self._followed)
            removed = read_removed(connection, self._followed)
        self._put(collection, changed)
        collection.remove(np.setdiff1d(removed, changed))
        self._followed = now.changes
        self.problem = None

    def _put(self, collection: WordCollection, vector_ids: Int64) -> None:
        """Write the present words of documents; what is deleted meanwhile is left out."""
        for start in range(0, len(vector_ids), _DOCUMENTS_A_READ):
            if self._stopping.is_set():
                raise VectorEngineError("the words are not written: the store is being closed")
            with self._connections.reading() as connection:
                some = vector_ids[start : start + _DOCUMENTS_A_READ].tolist()
                stored = read_stored_terms(connection, some)
            if stored.damaged:
                _log.error(
                    "the words of vector id %d and %d others are damaged and are not searched: "
                    "run longmatch doctor --repair",
                    *(stored.damaged[0], len(stored.damaged) - 1),
                )
            collection.put(stored.documents, stored.changes)


def differing(
    ids: Int64, changes: Int64, held_ids: Int64, held_changes: Int64
) -> tuple[Int64, Int64]:
    """Return which documents are missing or of another change, and which are superfluous.

    Args:
        ids: Int64[N], ascending, of the documents of a store.
        changes: Int64[N], that each is of.
        held_ids: Int64[M], ascending, of the documents of a collection.
        held_changes: Int64[M].
    """
    both, at, held_at = np.intersect1d(ids, held_ids, assume_unique=True, return_indices=True)
    same = both[changes[at] == held_changes[held_at]]
    return np.setdiff1d(ids, same), np.setdiff1d(held_ids, ids)

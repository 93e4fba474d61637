"""A thread that keeps a local copy of a database, and the index over it, at its present state."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic

from index.errors import DatabaseUnavailableError, IndexingError
from index.postgres.address import Database
from index.replica.copied_store import CopiedDocumentStore
from index.vectors.live_index import LiveIndex

FOLLOW_SECONDS = 1.0  # between rounds that nobody waits for


class Follower:
    """Follows a database in rounds; who searches waits for one that begins after it asked.

    Those who ask at the same time wait for the same round, which is one statement where nothing has
    changed. A database that does not answer holds up this thread alone.
    """

    def __init__(self, follow: Callable[[], None], database: Database) -> None:
        """Prepare to follow, from `start` on.

        Args:
            follow: brings copy and index to the state of the database.
            database: that is followed; a round that takes longer than its patience is a `problem`.
        """
        self._follow = follow
        self._name = database.address
        self._patience = database.patience
        self._lock = threading.Lock()
        self._next: Future[None] = Future()
        self._began: float | None = None
        self._error: IndexingError | None = None
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    @property
    def problem(self) -> str | None:
        """Why the last round failed, or the present one does not end; None if all is well."""
        began, error = self._began, self._error
        if began is not None and monotonic() - began > self._patience:
            return str(self.unanswered())
        return None if error is None else str(error)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self) -> Future[None]:
        """Return the end of a round that begins after now; it raises what the round raised."""
        with self._lock:
            asked = self._next
        self._woken.set()
        return asked

    def unanswered(self) -> DatabaseUnavailableError:
        """Return the error of who waited for too long."""
        return DatabaseUnavailableError(
            self._name, f"it has not answered for {self._patience:g} seconds"
        )

    def close(self) -> None:
        """Stop, and wait for the present round, but not for a database that does not answer."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(self._patience)

    def _run(self) -> None:
        while True:
            self._woken.wait(FOLLOW_SECONDS)
            self._woken.clear()
            with self._lock:
                asked, self._next = self._next, Future()
            if self._stopping.is_set():
                asked.set_exception(DatabaseUnavailableError(self._name, "the store is closed"))
                return
            self._began = monotonic()
            try:
                self._follow()
            except IndexingError as error:
                self._error = error
                asked.set_exception(error)
            except Exception as error:  # the thread must survive
                self._error = IndexingError(type(error).__name__)
                asked.set_exception(error)
            else:
                self._error = None
                asked.set_result(None)
            self._began = None


def follow_from_now(store: CopiedDocumentStore, index: LiveIndex, database: Database) -> Follower:
    """Start a thread that brings a copy, and the index over it, to the state of its database."""

    def follow() -> None:
        store.follow()
        if index.sequence < store.sequence:
            index.catch_up()

    follower = Follower(follow, database)
    follower.start()
    return follower

"""Derived data that follows the store, each in a file of its own next to it, or in its database.

A write commits in the store, is applied to the followers, and is then acknowledged. A follower
notes the sequence of the store that it holds. Its file may be deleted at any moment: opening the
store for writing applies what is missing, and what is damaged, or follows another store or another
state of it, is deleted and made again. In a database, several servers follow: each applies what
follows the state that it finds there, and leaves it if another was first.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from index.errors import StorageError, StoreError
from index.progress import Progress
from index.sqlite.connections import DatabaseFormat, SQLiteConnections
from index.store.change_log import Changes, read_changes
from index.store.database import Connection, Connections
from index.store.rows import SEQUENCE

_DOCUMENTS_A_TRANSACTION = 64
_IN_ITS_TRANSACTION = 1_000  # documents of a change that are worked off as it is applied
_ALL = 2**31
AT_OPENING = 1_000  # documents that opening works off; more are left to the maintenance
FILE_ENDINGS = ("", "-wal", "-shm")
_IDENTITY = """
SELECT identity FROM meta"""
_STATE = """
SELECT rule, position FROM state"""
_NOTE_STATE = """
UPDATE state SET rule = ?, position = ?"""
STATE_SCHEMA = """
CREATE TABLE state (rule TEXT NOT NULL, position INTEGER NOT NULL);
INSERT INTO state VALUES ('', 0);"""
_log = logging.getLogger(__name__)


class Follower:
    """A follower in an SQLite file; a subclass says what is derived.

    Another process reads the file that the writing process follows with. Every call raises
    StoreError where a file cannot be read or written; one that is damaged is made again before the
    next.

    Attributes:
        path: of the file.
        position: the sequence of the store that it holds, as far as this process knows.
        unfinished: whether so much was to be made again that it is left to the maintenance.
    """

    TASK: ClassVar[str] = ""  # what `finish` does, for people

    def __init__(
        self,
        truth: Connections,
        path: Path,
        kind: DatabaseFormat,
        *,
        rule: str = "",
        at_once: bool = True,
        read_only: bool,
        shared: Connections | None = None,
    ) -> None:
        """Follow a store; nothing is opened before the first use.

        Args:
            truth: connections of the store.
            path: of the file.
            kind: format of the file, without the table of its state.
            rule: what its content depends on besides the store; by another it is made again.
            at_once: work off what is added when it is applied; else only by `finish`.
            read_only: another process follows; this one reads.
            shared: connections to the tables, where they are in a database and not in a file.
        """
        self.path = path
        self.position = 0
        self.unfinished = False
        self._truth = truth
        self._kind = replace(kind, schema=kind.schema + STATE_SCHEMA, durable=False)
        ((identity,),) = truth.read_rows(_IDENTITY)
        self._rule = f"{identity} {rule}"
        self._at_once = at_once
        self._read_only = read_only
        self._following = threading.RLock()
        self._shared = shared
        self._file: SQLiteConnections | None = None
        self._opened_as: tuple[int, int] | None = None
        self._behind = True  # until it is known to hold what the store holds
        self._damaged = False
        self._closed = False

    @property
    def behind(self) -> bool:
        """Whether it lacks something that the store has, because of a failure or a rebuild."""
        return self._behind or self.unfinished

    def follow(self, last: Changes | None = None) -> None:
        """Apply what the store has and this lacks, and work off what that leaves to do.

        Args:
            last: the last changes, which need not be read where nothing else is missing.
        """
        with self._following:
            self._connections()
            try:
                if last is not None and not self._behind and last.sequence == self.position + 1:
                    self.apply(last)
                    return
                rest, self._behind = self._behind, False
                changes = self._missing()
                if changes is None or self._damaged:
                    self.rebuild()
                elif changes.sequence != self.position:
                    self.apply(changes)
                if rest:
                    self._work_off_rest()
            except BaseException:
                self._behind = True
                raise

    def apply(self, changes: Changes) -> None:
        """Apply changes, and work off what that leaves to do."""
        with self._following:
            self._work_off(self._apply(changes))

    def rebuild(self) -> None:
        """Delete the file, and derive it from the store again; much is left to the maintenance."""
        with self._following:
            if self._shared is None:
                self._close_file()
                self._delete()
            self._damaged = False
            with self._truth.reading() as store:
                changes = read_changes(store, 0) or Changes(0, [], [])
            self._connections()
            self._behind, self.position = False, 0
            self._apply(changes, rebuilding=True)
            self._work_off_rest()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection inside a read transaction, after following where that has failed."""
        with self._noting_damage(), self._followed().reading() as connection:
            yield connection

    def read_rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, after following where that has failed."""
        with self._noting_damage():
            return self._followed().read_rows(statement, *values)

    def _followed(self) -> Connections:
        """Return the connections of the file, which holds what the store holds if it can."""
        connections = self._connections()
        if self._read_only:
            return connections
        self._make_up()
        return self._connections()

    def _make_up(self) -> None:
        """Follow what it lacks; a full disk does not keep what is there from being read."""
        if self._lags():
            try:
                self.follow()
            except StorageError as error:
                _log.error("what is derived does not follow the store: %s", error)

    def _lags(self) -> bool:
        """Return whether it lacks something, be it what another server has written."""
        if self._truth.shared and not self._behind:
            ((present,),) = self._truth.read_rows(SEQUENCE)
            self._behind = present != self.position
        return self._behind

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend the connection that writes inside a transaction: committed, or undone."""
        with self._following, self._noting_damage(), self._connections().writing() as connection:
            yield connection

    def close(self) -> None:
        """Close the file; every later use raises StoreError."""
        with self._following:
            self._closed = True
            self._close_file()
            if self._shared is not None:
                self._shared.close()

    def pending(self) -> int:
        """Count the documents that are still to be worked off."""
        with self.reading():
            return len(self._rest(_ALL))

    def _add(self, connection: Connection, vector_ids: Sequence[int]) -> Sequence[int]:
        """Add documents, some of which may be known, and return what is to be worked off."""
        raise NotImplementedError

    def _remove(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        """Remove documents, some of which may be unknown."""
        raise NotImplementedError

    def _rest(self, limit: int, after: int = 0) -> Sequence[int]:
        """Return the first documents that are still to be worked off."""
        raise NotImplementedError

    def _derive(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        """Derive what follows from documents that were added, and still are to be worked off."""
        raise NotImplementedError

    def _apply(self, changes: Changes, *, rebuilding: bool = False) -> Sequence[int]:
        """Apply changes in one transaction, and return what is to be worked off in others.

        They are left out where another server has applied some.
        """
        with self.writing() as connection:
            if self._shared is not None and rebuilding:
                self._clear(connection)
            elif self._shared is not None:
                found = tuple(connection.execute(_STATE).fetchone())
                if found != (self._rule, self.position):
                    self._behind = True
                    return ()
            if changes.removed and self.position:  # an empty file has none of them
                self._remove(connection, changes.removed)
            pending = self._add(connection, changes.changed) if changes.changed else ()
            at_once = self._at_once and not rebuilding
            if at_once and len(pending) <= _IN_ITS_TRANSACTION:
                for some in _batches(pending):
                    self._derive(connection, some)
                pending = ()
            connection.execute(_NOTE_STATE, (self._rule, changes.sequence))
        self.position = changes.sequence
        return pending if at_once else ()

    def _clear(self, connection: Connection) -> None:
        """Remove all documents from the tables in a database."""
        raise NotImplementedError

    def _work_off(self, vector_ids: Sequence[int]) -> None:
        for some in _batches(vector_ids):
            with self.writing() as connection:  # nothing is revised between reading and writing
                self._derive(connection, some)

    def _work_off_rest(self) -> None:
        rest = self._rest(AT_OPENING + 1) if self._at_once else ()
        self.unfinished = len(rest) > AT_OPENING
        if not self.unfinished:
            self._work_off(rest)

    def finish(self, progress: Progress, stop: Callable[[], bool] = lambda: False) -> None:
        """Work off all that is left, unless `stop` returns true; a later call continues.

        Documents may be put and deleted meanwhile, and a kill loses nothing.
        """
        pending = self.pending()
        if not pending:
            return
        progress.started(self.TASK, pending)
        last = 0
        while not stop():
            some = self._rest(_DOCUMENTS_A_TRANSACTION, last)
            self._work_off(some)
            progress.advanced(len(some))
            if len(some) < _DOCUMENTS_A_TRANSACTION:
                self.unfinished = False
                return  # documents that are put meanwhile would keep this loop going
            last = some[-1]

    def _missing(self) -> Changes | None:
        """Return what has to be applied; None where that is not known."""
        try:
            with self._connections().reading() as connection:
                found = connection.execute(_STATE).fetchone()
        except StorageError:
            raise
        except StoreError as error:
            _log.warning("%s", error)
            return None
        if found is None or found[0] != self._rule:
            return None
        self.position = found[1]
        with self._truth.reading() as store:
            return read_changes(store, found[1])

    def _connections(self) -> Connections:
        """Return the connections of the file that is there now, which may be another one."""
        if self._shared is not None:
            return self._shared
        file = self._file
        if file is None or _file_of(self.path) != self._opened_as:
            with self._following:
                file = self._open()
        return file

    def _open(self) -> SQLiteConnections:
        self._close_file()
        if self._closed:
            raise StoreError(f"{self.path}: the store is closed")
        self._behind = True
        try:
            if not self._read_only and not self.path.exists():
                self._delete()  # the log of a file that was deleted
            return self._opened()
        except StorageError:
            raise
        except StoreError as error:
            self._close_file()
            if self._read_only:
                raise StoreError(f"{error}: what opens the store for writing makes it") from error
            _log.warning("%s; it is made again", error)
            self._delete()
            return self._opened()

    def _opened(self) -> SQLiteConnections:
        self._file = SQLiteConnections(self.path, read_only=self._read_only, kind=self._kind)
        self._opened_as = _file_of(self.path)
        if self._read_only and self._missing() is None:
            raise StoreError(f"{self.path}: follows another state of the store")
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _delete(self) -> None:
        try:
            for ending in FILE_ENDINGS:
                self.path.with_name(f"{self.path.name}{ending}").unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be deleted: {error.strerror}") from error

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            self._behind = self._damaged = True
            raise StoreError(f"{self.path}: {error}") from error
        except StoreError as error:
            if not isinstance(error, StorageError) and str(error).startswith(f"{self.path}:"):
                self._behind = self._damaged = True
            raise


def follow_all(followers: Iterable[Follower], last: Changes | None = None) -> None:
    """Bring followers to the store. A failure is logged: the next write or search tries again.

    The last changes need not be read again, where they are given.
    """
    for follower in followers:
        try:
            follower.follow(last)
        except StoreError as error:
            _log.warning("what is derived does not follow the store: %s", error)


def _batches(vector_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    size = _DOCUMENTS_A_TRANSACTION
    return (vector_ids[start : start + size] for start in range(0, len(vector_ids), size))


def _file_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

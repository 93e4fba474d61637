"""The alignment index of a copy: all copies of a database align in the same space.

The space is an attachment of the database. Any process may fit a new one to the collection; of two
that do so at once, the first is used.
"""

from collections.abc import Callable
from pathlib import Path

from encoder.alignment.space import AlignmentSpace
from index.alignment.alignment_index import AlignmentIndex
from index.alignment.refresh import fit_to_documents
from index.alignment.tables import FittedSpace
from index.errors import StoreError
from index.postgres.connections import PostgreSQLConnections
from index.postgres.history import attach
from index.postgres.statements import lock_counters
from index.progress import Progress
from index.replica.whole_rows import ALIGNMENT
from index.sqlite.connections import SQLiteConnections

_REVISION_OF = """
SELECT coalesce(max(revision), -1) FROM {s}.attachments WHERE name = %s"""


class CopiedAlignment(AlignmentIndex):
    """The alignment index of an open copy. Safe to use from many threads."""

    def __init__(
        self,
        connections: SQLiteConnections,
        path: Path,
        database: PostgreSQLConnections,
        follow: Callable[[], int],
    ) -> None:
        """Use the connections of a copy.

        Args:
            connections: to the copy.
            path: of the copy.
            database: that is copied.
            follow: brings the copy to the present revision of the database, and returns it.
        """
        super().__init__(connections, path)
        self._database = database
        self._follow = follow

    def start_with(self, space: AlignmentSpace) -> None:
        """Use this space in a database that has none yet.

        Raises:
            StoreError: database or copy cannot be read or written.
        """
        self._follow()
        if self.space() is None:
            self._publish(FittedSpace(space), -1)

    def refresh(
        self, progress: Progress, *, fit: bool, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Project pending documents; with `fit`, first fit a new space for all copies.

        Raises:
            StoreError: database or copy cannot be read or written, or block vectors are damaged.
        """
        known = self._follow() if fit else -1
        if fit and not self.has_next():
            try:
                fitted = fit_to_documents(self._connections, progress)
            except ValueError as error:
                raise StoreError(f"{self._path}: {error}; run longmatch doctor --repair") from error
            if fitted is not None:
                self._publish(fitted, known)
        super().refresh(progress, fit=False, stop=stop)

    def _publish(self, fitted: FittedSpace, known: int) -> None:
        """Let all copies use a space, unless another one came after the revision `known`."""
        with self._database.writing() as session:
            lock_counters(session)
            if int(session.value(_REVISION_OF, ALIGNMENT)) <= known:
                attach(session, {ALIGNMENT: fitted.pack()})
        self._follow()

"""What a copy of a store in PostgreSQL must do to hold what the database holds.

A document whose text is new has a new vector id, higher than all before it: the copy takes the rows
after its last one. Titles and metadata that changed are known by the revision of their row, and
removals by the change log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import index.postgres.statements as sql
from index.document import Document
from index.errors import StoreError
from index.postgres.connections import Session
from index.postgres.history import Revision, is_known, read_attachments, read_revision
from index.store.checksums import unsound_row, unsound_summaries
from index.store.records import DocumentRow
from index.store.rows import stored_metadata

ROWS_A_STEP = 128
_REMOVED = """
SELECT vector_id FROM {s}.removals WHERE sequence > %s AND vector_id <= %s ORDER BY vector_id"""
_DESCRIBED = """
SELECT vector_id, id, title, metadata FROM {s}.documents
WHERE revision > %s AND vector_id <= %s ORDER BY vector_id"""
_NUMBER_ADDED = """
SELECT count(*) FROM {s}.documents WHERE vector_id > %s"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a copy has followed.

    Attributes:
        revision: that it holds; None for a new copy.
        sequence: of the store at that revision.
        last: the last vector id that was copied; where the copying was killed, later ones miss.
        damaged: vector ids of documents that are damaged in the database, ascending.
    """

    revision: Revision | None = None
    sequence: int = 0
    last: int = 0
    damaged: tuple[int, ...] = ()

    def after(self, copied: Sequence[int], damaged: Sequence[int]) -> "Position":
        """Return the position after documents were copied, and others found to be damaged."""
        last = max([self.last, *copied, *damaged])
        return replace(self, last=last, damaged=tuple(sorted({*self.damaged, *damaged})))


class Changes:
    """The changes after a position, as one transaction sees them."""

    def __init__(self, session: Session, position: Position) -> None:
        """Read where the database is.

        Raises:
            StoreError: the copy is of another history.
        """
        self._session = session
        self._after = position
        self._known = -1 if position.revision is None else position.revision.number
        if position.revision is not None and not is_known(session, position.revision):
            raise StoreError(
                "the local copy of the database is of another history, or too old: it is made anew "
                "at the next start"
            )
        self.revision, self.sequence = read_revision(session)

    def reached(self, removed: Sequence[int], damaged: Sequence[int]) -> Position:
        """Return the position of a copy to which all but the new documents were applied.

        Args:
            removed: as `removed` gave them.
            damaged: of the documents that `described` gave.
        """
        left = {*self._after.damaged, *damaged} - {*removed}
        return Position(self.revision, self.sequence, self._after.last, tuple(sorted(left)))

    def count_added(self) -> int:
        """Return how many documents were added, or have a new text."""
        return int(self._session.value(_NUMBER_ADDED, self._after.last))

    def removed(self) -> list[int]:
        """Return the vector ids of the copy that were removed, ascending; some it may not have."""
        rows = self._session.rows(_REMOVED, self._after.sequence, self._after.last)
        return [int(row[0]) for row in rows]

    def described(self) -> tuple[dict[int, Document], list[int]]:
        """Return documents without their texts whose title or metadata may have changed.

        Returns:
            The documents by vector id, and the vector ids of those that are damaged.
        """
        found = self._session.rows(_DESCRIBED, self._known, self._after.last)
        rows = [(*row[:2], sql.as_text(row[2]), row[3]) for row in found]
        checksums = sql.read_checksums(self._session, [row[0] for row in rows])
        damaged = set(unsound_summaries(rows, checksums))
        sound = {
            vector_id: Document(name, "-", title, stored_metadata("", name, metadata))
            for vector_id, name, title, metadata in rows
            if vector_id not in damaged
        }
        return sound, sorted(damaged)

    def added(self) -> Iterator[tuple[Sequence[DocumentRow], list[int]]]:
        """Yield the new documents in steps, ascending, with the vector ids of damaged ones."""
        last = self._after.last
        while rows := sql.rows_after(self._session, last, ROWS_A_STEP):
            known = sql.read_checksums(self._session, [one.vector_id for one in rows])
            damaged = [one.vector_id for one in rows if unsound_row(one, known)]
            yield [one for one in rows if one.vector_id not in damaged], damaged
            last = rows[-1].vector_id

    def attachments(self) -> Mapping[str, bytes]:
        """Return the small files that were written, by name."""
        return read_attachments(self._session, self._known)

"""Whole documents of a store in PostgreSQL, read and written as they are stored, for a migration.

A store that is being filled has a format of its own, so that nothing else opens it. What was
copied is known from its last vector id: a migration that was killed goes on after it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import index.postgres.statements as sql
from encoder.adapter import VectorSpace
from index.errors import DamagedDocumentError, StoreError
from index.postgres.address import PostgreSQLAddress
from index.postgres.connections import PostgreSQLConnections, Session
from index.postgres.history import advance_revision, attach, read_attachments
from index.postgres.schema import BEING_FILLED, FORMAT, create_if_missing, read_space
from index.store.checksums import unsound_row
from index.store.records import DocumentRow, StoreCounters

_MARK = "migration"  # an attachment: what is copied here
_COUNTERS = """
SELECT sequence, last_vector_id, (SELECT count(*) FROM {s}.documents) FROM {s}.meta"""
_FINISH = """
UPDATE {s}.meta SET format = %s, sequence = %s, last_vector_id = %s, log_start = %s"""


@dataclass(frozen=True, slots=True)
class PostgreSQLRows:
    """The documents of a store, as they are in one transaction."""

    session: Session
    address: PostgreSQLAddress

    def counters(self) -> StoreCounters:
        """Return the counters of the store."""
        ((sequence, last, documents),) = self.session.rows(_COUNTERS)
        return StoreCounters(sequence, last, documents)

    def after(self, vector_id: int, limit: int) -> list[DocumentRow]:
        """Return the first documents after a vector id, ascending.

        Raises:
            DamagedDocumentError: one is damaged.
        """
        rows = sql.rows_after(self.session, vector_id, limit)
        known = sql.read_checksums(self.session, [one.vector_id for one in rows])
        for one in rows:
            if unsound_row(one, known):
                raise DamagedDocumentError(
                    self.address, one.document_id, "row", "put it again, or delete it"
                )
        return rows

    def attachments(self) -> dict[str, bytes]:
        """Return the small files that belong to the vectors, by name."""
        found = read_attachments(self.session)
        found.pop(_MARK, None)
        return found


@contextmanager
def reading_rows(
    connections: PostgreSQLConnections, *, unfinished: bool = False
) -> Iterator[PostgreSQLRows]:
    """Read the documents of a store in one transaction.

    Raises:
        StoreError: there is no store, or one that a migration has not finished, unless
            `unfinished`.
    """
    read_space(connections, unfinished=unfinished)
    with connections.reading() as session:
        yield PostgreSQLRows(session, connections.address)


def begin_filling(
    connections: PostgreSQLConnections, space: VectorSpace, source: str
) -> tuple[StoreCounters, bool]:
    """Prepare a store for the documents of a source.

    Returns:
        How far it is filled, and whether a migration of the same source was finished before.

    Raises:
        StoreError: it holds vectors of another checkpoint or documents of something else, or
            cannot be written.
    """
    create_if_missing(connections, space.fingerprint, space.dimension, BEING_FILLED)
    found, finished = read_space(connections, unfinished=True)
    if found != space:
        raise StoreError(
            f"{connections.address}: has vectors of checkpoint {found.fingerprint[:12]} and "
            f"dimension {found.dimension}, not of {space.fingerprint[:12]} and "
            f"{space.dimension}: name another schema"
        )
    with connections.writing() as session:
        sql.lock_counters(session)
        counters = PostgreSQLRows(session, connections.address).counters()
        marks = read_attachments(session)
        mark = json.loads(marks[_MARK]) if _MARK in marks else None
        if mark != source and (mark or counters.last_vector_id):
            raise StoreError(
                f"{connections.address}: holds {counters.documents} other documents: name another "
                "schema, or drop this one"
            )
        attach(session, {_MARK: json.dumps(source).encode()})
        if mark is None:  # it may have been made by a process that found nothing to store
            session.run("UPDATE {s}.meta SET format = %s", BEING_FILLED)
    return counters, finished and mark == source


def fill(connections: PostgreSQLConnections, after: Callable[[int], Sequence[DocumentRow]]) -> int:
    """Copy the next documents in one transaction; return how many, 0 at the end.

    Args:
        connections: to a store for which `begin_filling` was called.
        after: returns the first documents of the source after a vector id.

    Raises:
        StoreError: they cannot be written; none was.
    """
    with connections.writing() as session:
        sequence, last = sql.lock_counters(session)
        rows = after(last)
        if rows:
            metadata = {one.vector_id: dict(json.loads(one.metadata)) for one in rows}
            sql.insert_rows(session, rows, metadata, advance_revision(session))
            sql.set_counters(session, sequence, rows[-1].vector_id)
    return len(rows)


def finish_filling(
    connections: PostgreSQLConnections, counters: StoreCounters, attachments: Mapping[str, bytes]
) -> None:
    """Let a store that was filled be opened, with the counters of its source.

    Removals are not copied: an index catches up from the sequence of the source, or from 0.

    Raises:
        StoreError: it cannot be written.
    """
    with connections.writing() as session:
        sql.lock_counters(session)
        attach(session, attachments)
        session.run(_FINISH, FORMAT, counters.sequence, counters.last_vector_id, counters.sequence)

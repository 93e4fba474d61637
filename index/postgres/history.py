"""The writes of a store in PostgreSQL, as those follow them who keep a copy.

The revision counts the writes: of documents, titles, metadata and attachments, where the sequence
counts changes of the set of vectors alone. Each write has a random stamp: a copy of a revision
whose stamp is another one is of another history, as after a restore of the database, and is made
anew. The last `KEPT_WRITES` are known; a copy that is further behind is made anew, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from index.postgres.connections import PostgreSQLConnections, Session

KEPT_WRITES = 1_000_000
_BETWEEN_FORGETTING = 1_000
_ADVANCE = """
UPDATE {s}.meta SET revision = revision + 1 RETURNING revision"""
_STAMP = """
INSERT INTO {s}.writes (revision, stamp) VALUES (%s, gen_random_uuid()::text)"""
_POSITION = """
SELECT m.revision, w.stamp, m.sequence
FROM {s}.meta m JOIN {s}.writes w ON w.revision = m.revision"""
_STAMP_OF = """
SELECT stamp FROM {s}.writes WHERE revision = %s"""
_FORGET_WRITES = """
DELETE FROM {s}.writes WHERE revision <= %s"""
# A sequence is at least one write: who knows one of the last writes needs none of these.
_FORGET_REMOVALS = """
DELETE FROM {s}.removals WHERE sequence <= (SELECT sequence FROM {s}.meta) - %s"""
_SET_LOG_START = """
UPDATE {s}.meta SET log_start = greatest(log_start, sequence - %s)"""
_ATTACHMENTS = """
SELECT name, content FROM {s}.attachments WHERE revision > %s ORDER BY name"""
_ATTACH = """
INSERT INTO {s}.attachments (name, revision, content) VALUES (%s, %s, %s)
ON CONFLICT (name) DO UPDATE SET revision = EXCLUDED.revision, content = EXCLUDED.content"""


@dataclass(frozen=True, slots=True)
class Revision:
    """A write of the history of a store.

    Attributes:
        number: how many writes there were up to it.
        stamp: which no other write has.
    """

    number: int
    stamp: str


def advance_revision(session: Session) -> int:
    """Count a write, which this transaction makes, and return its revision."""
    revision = int(session.value(_ADVANCE))
    session.run(_STAMP, revision)
    if revision % _BETWEEN_FORGETTING == 0:
        session.run(_FORGET_WRITES, revision - KEPT_WRITES)
        session.run(_FORGET_REMOVALS, KEPT_WRITES)
        session.run(_SET_LOG_START, KEPT_WRITES)
    return revision


def read_revision(session: Session) -> tuple[Revision, int]:
    """Return the last write, and the sequence after it."""
    ((number, stamp, sequence),) = session.rows(_POSITION)
    return Revision(number, stamp), int(sequence)


def peek_revision(connections: PostgreSQLConnections) -> Revision:
    """Return the last write by one statement without a transaction.

    Raises:
        StoreError: the database cannot be read, or has no such store.
    """
    number, stamp, _ = connections.peek(_POSITION)
    return Revision(number, stamp)


def is_known(session: Session, revision: Revision) -> bool:
    """Return whether a write is of this history, and not forgotten."""
    return bool(session.value(_STAMP_OF, revision.number) == revision.stamp)


def attach(session: Session, files: Mapping[str, bytes]) -> None:
    """Write small files that belong to the vectors, by name, in a transaction of the caller."""
    if files:
        revision = advance_revision(session)
        session.insert(_ATTACH, [(name, revision, one) for name, one in files.items()])


def read_attachments(session: Session, after: int = -1) -> dict[str, bytes]:
    """Return the small files that were written after a revision, by name."""
    return {name: bytes(content) for name, content in session.rows(_ATTACHMENTS, after)}

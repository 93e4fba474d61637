"""The jobs of a data directory, durable and in the order in which they run."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from index.sqlite.connections import DatabaseFormat, SQLiteConnections, utc_now
from service.errors import JobEndedError, JobNotFoundError
from service.jobs.idempotency import KeyedResponse, insert_response

EndState = Literal["done", "cancelled", "failed"]
JobState = Literal["waiting", "running"] | EndState

MAX_LISTED_ERRORS = 100


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that is not a valid document, and why.

    Attributes:
        line: counted from 1.
        pointer: JSON pointer into the line: "#/text"; "#" for the whole line.
        detail: what is wrong, without the value.
    """

    line: int
    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file of JSON Lines, on the disk.

    Attributes:
        id: of the job that it becomes.
        size: bytes, decompressed.
        lines: number of lines that are not blank.
        digest: SHA-256 of the file.
    """

    id: str
    size: int
    lines: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as it is stored.

    Attributes:
        number: jobs of one client run in this order.
        id: its name for clients.
        state: waiting, running, or how it ended.
        size: bytes of the upload, decompressed.
        digest: SHA-256 of the upload.
        client: who sent it: jobs of one run in their order, those of different ones in turns.
        accepted: number of lines that are not blank.
        position: bytes of the upload that have been processed.
        line: lines that have been processed, including blank ones.
        indexed: documents stored.
        unchanged: how many of them had the same text before.
        truncated: how many of them were not read whole.
        failed: lines that are not valid documents.
        detail: why it failed, or what it waits for.
        created: ISO 8601 in UTC.
        ended: ISO 8601 in UTC; None while it has not ended.
    """

    number: int
    id: str
    state: JobState
    size: int
    digest: bytes
    client: str
    accepted: int
    position: int
    line: int
    indexed: int
    unchanged: int
    truncated: int
    failed: int
    detail: str | None
    created: str
    ended: str | None

    @property
    def has_ended(self) -> bool:
        """Whether it is done, cancelled or failed."""
        return self.state not in ("waiting", "running")

    @property
    def progress(self) -> float:
        """Share of the bytes of the upload that have been processed."""
        return round(self.position / self.size, 4)


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one batch of an upload: where it ended, and what it adds to the `Job`."""

    position: int
    line: int
    indexed: int
    unchanged: int
    truncated: int
    failed: int
    errors: Sequence[LineError]


SCHEMA_VERSION = 3
APPLICATION_ID = 0x4C4D4A42
MAX_ENDED_JOBS = 1000  # older ones are deleted

# `number` is never reused (AUTOINCREMENT): jobs run in its order.
SCHEMA = """
CREATE TABLE served (
    served_seconds REAL NOT NULL
);
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    size INTEGER NOT NULL,
    digest BLOB NOT NULL,
    client TEXT NOT NULL,
    accepted INTEGER NOT NULL,
    position INTEGER NOT NULL DEFAULT 0,
    line INTEGER NOT NULL DEFAULT 0,
    indexed INTEGER NOT NULL DEFAULT 0,
    unchanged INTEGER NOT NULL DEFAULT 0,
    truncated INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    detail TEXT,
    created TEXT NOT NULL,
    ended TEXT
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE TABLE line_errors (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    line INTEGER NOT NULL,
    pointer TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (job, line)
) WITHOUT ROWID;
CREATE TABLE responses (
    key TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    status INTEGER NOT NULL,
    location TEXT,
    body BLOB NOT NULL,
    served_seconds REAL NOT NULL
);
CREATE INDEX responses_by_age ON responses (served_seconds);
INSERT INTO served VALUES (0)"""
_JOBS = DatabaseFormat("jobs", APPLICATION_ID, SCHEMA_VERSION, SCHEMA)


def open_tables(path: Path, *, read_only: bool = False) -> SQLiteConnections:
    """Open the tables; create them if there is no file."""
    return SQLiteConnections(path, read_only=read_only, kind=_JOBS)


_COLUMNS = ", ".join(field.name for field in fields(Job))
_UNFINISHED = "state IN ('waiting', 'running')"


class JobStore:
    """The jobs of one data directory."""

    def __init__(self, connections: SQLiteConnections) -> None:
        self._connections = connections

    def add(self, upload: Upload, keyed: KeyedResponse | None, client: str = "") -> Job:
        """Store a new job of a client, with the response to its request if that has a key."""
        with self._connections.writing() as connection:
            connection.execute(
                "INSERT INTO jobs (id, state, size, digest, client, accepted, created) "
                "VALUES (?, 'waiting', ?, ?, ?, ?, ?)",
                (upload.id, upload.size, upload.digest, client, upload.lines, utc_now()),
            )
            if keyed is not None:
                insert_response(connection, keyed)
            connection.execute(
                f"DELETE FROM jobs WHERE NOT {_UNFINISHED} AND number <= (SELECT number FROM jobs "  # noqa: S608
                f"WHERE NOT {_UNFINISHED} ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (MAX_ENDED_JOBS,),
            )
            return _find(connection, upload.id)

    def find(self, job_id: str) -> tuple[Job, list[LineError]]:
        """Return a job and its first errors."""
        with self._connections.reading() as connection:
            job = _find(connection, job_id)
            rows = connection.execute(
                "SELECT line, pointer, detail FROM line_errors WHERE job = ? ORDER BY line",
                (job.number,),
            )
            return job, [LineError(*row) for row in rows]

    def newest(self, limit: int, before: str | None) -> list[Job]:
        """Return at most `limit` jobs, the newest first, older than the job `before`."""
        with self._connections.reading() as connection:
            bound = 2**62 if before is None else _find(connection, before).number
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE number < ? "  # noqa: S608
                "ORDER BY number DESC LIMIT ?",
                (bound, limit),
            )
            return [Job(*row) for row in rows]

    def unfinished(self) -> list[Job]:
        """Return the waiting and running jobs in the order in which they were accepted."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE {_UNFINISHED} ORDER BY number"  # noqa: S608
            )
            return [Job(*row) for row in rows]

    def begin(self, job: Job) -> Job | None:
        """Mark an unfinished job as running and return it; None if it has ended."""
        with self._connections.writing() as connection:
            row = connection.execute(
                "UPDATE jobs SET state = 'running', detail = NULL "  # noqa: S608
                f"WHERE number = ? AND {_UNFINISHED} RETURNING {_COLUMNS}",
                (job.number,),
            ).fetchone()
            return None if row is None else Job(*row)

    def advance(self, job: Job, step: Step) -> bool:
        """Record a step; return whether the job continues.

        It is recorded for a job that was cancelled meanwhile, too: the documents are stored.
        """
        with self._connections.writing() as connection:
            connection.execute(
                "UPDATE jobs SET position = ?, line = ?, indexed = indexed + ?, "
                "unchanged = unchanged + ?, truncated = truncated + ?, failed = failed + ? "
                "WHERE number = ?",
                (
                    step.position,
                    step.line,
                    step.indexed,
                    step.unchanged,
                    step.truncated,
                    step.failed,
                    job.number,
                ),
            )
            _list_errors(connection, job, step.errors)
            return not _find(connection, job.id).has_ended

    def pause(self, job: Job, detail: str) -> None:
        """Record that a job could not continue, and what it waits for."""
        with self._connections.writing() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'waiting', detail = ? "  # noqa: S608
                f"WHERE number = ? AND {_UNFINISHED}",
                (detail, job.number),
            )

    def end(self, job: Job, state: EndState, detail: str | None = None) -> bool:
        """Record how a job ended; return False if it had ended before."""
        with self._connections.writing() as connection:
            return _end(connection, job.id, state, detail)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job; what it has stored stays. Raise JobEndedError if it has ended already."""
        with self._connections.writing() as connection:
            if not _end(connection, job_id, "cancelled", None):
                raise JobEndedError(job_id, _find(connection, job_id).state)
            return _find(connection, job_id)


def _find(connection: sqlite3.Connection, job_id: str) -> Job:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE id = ?",  # noqa: S608
        (job_id,),
    ).fetchone()
    if row is None:
        raise JobNotFoundError(job_id)
    return Job(*row)


def _end(connection: sqlite3.Connection, job_id: str, state: str, detail: str | None) -> bool:
    """Record how a job ended; return False if it had ended before."""
    done = connection.execute(
        "UPDATE jobs SET state = ?, detail = ?, ended = ? "  # noqa: S608
        f"WHERE id = ? AND {_UNFINISHED}",
        (state, detail, utc_now(), job_id),
    )
    return done.rowcount > 0


def _list_errors(connection: sqlite3.Connection, job: Job, errors: Sequence[LineError]) -> None:
    (listed,) = connection.execute(
        "SELECT count(*) FROM line_errors WHERE job = ?", (job.number,)
    ).fetchone()
    room = max(0, MAX_LISTED_ERRORS - listed)
    first = sorted(errors, key=lambda error: error.line)[:room]
    connection.executemany(
        "INSERT INTO line_errors VALUES (?, ?, ?, ?)",
        [(job.number, error.line, error.pointer, error.detail) for error in first],
    )

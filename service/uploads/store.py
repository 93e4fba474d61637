"""The jobs of a collection, durable and in the order in which they run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Connection, delete, func, insert, select, update

from index.sqlite.connections import utc_now
from service.errors import JobEndedError, JobNotFoundError
from service.metrics import JobEnd
from service.state import State, jobs, line_errors

JobState = Literal["waiting", "running"] | JobEnd

MAX_LISTED_ERRORS = 100


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that is not a valid document."""

    line: Annotated[int, Field(description="Counted from 1.")]
    pointer: Annotated[str, Field(description="JSON pointer into the line.")]
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
        server: which has the upload, and runs the job; "" for the only one.
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
    server: str

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


MAX_ENDED_JOBS = 1000  # older ones are deleted

_UNFINISHED = jobs.c.state.in_(("waiting", "running"))


class JobStore:
    """The jobs of one collection."""

    def __init__(self, state: State, server: str = "") -> None:
        """Use an open state, which several servers may share."""
        self._state = state
        self._server = server

    def insert(self, connection: Connection, upload: Upload, client: str = "") -> None:
        """Store a new job of a client in the transaction of the caller."""
        row = {
            "id": upload.id,
            "state": "waiting",
            "size": upload.size,
            "digest": upload.digest,
            "client": client,
            "accepted": upload.lines,
            "created": utc_now(),
            "server": self._server,
        }
        connection.execute(insert(jobs).values(row))
        ended = select(jobs.c.number).where(~_UNFINISHED).order_by(jobs.c.number.desc())
        last_kept = connection.scalar(ended.limit(1).offset(MAX_ENDED_JOBS))
        if last_kept is not None:
            connection.execute(delete(jobs).where(~_UNFINISHED, jobs.c.number <= last_kept))

    def find(self, job_id: str) -> tuple[Job, list[LineError]]:
        """Return a job and its first errors."""
        found = select(line_errors.c.line, line_errors.c.pointer, line_errors.c.detail)
        with self._state.reading() as connection:
            job = _find(connection, job_id)
            rows = connection.execute(
                found.where(line_errors.c.job == job.number).order_by(line_errors.c.line)
            )
            return job, [LineError(*row) for row in rows]

    def newest(self, limit: int, before: str | None) -> list[Job]:
        """Return at most `limit` jobs, the newest first, older than the job `before`."""
        found = select(jobs).order_by(jobs.c.number.desc()).limit(limit)
        with self._state.reading() as connection:
            if before is not None:
                found = found.where(jobs.c.number < _find(connection, before).number)
            return [Job(*row) for row in connection.execute(found)]

    def unfinished(self) -> list[Job]:
        """Return the waiting and running jobs of this server, in the order of their uploads."""
        found = (
            select(jobs).where(_UNFINISHED, jobs.c.server == self._server).order_by(jobs.c.number)
        )
        with self._state.reading() as connection:
            return [Job(*row) for row in connection.execute(found)]

    def begin(self, job: Job) -> Job | None:
        """Mark an unfinished job as running and return it; None if it has ended."""
        with self._state.writing() as connection:
            is_unfinished = _change(connection, job.id, state="running", detail=None)
            return _find(connection, job.id) if is_unfinished else None

    def advance(self, job: Job, step: Step) -> bool:
        """Record a step; return whether the job continues.

        It is recorded for a job that was cancelled meanwhile, too: the documents are stored.
        """
        counted = ("indexed", "unchanged", "truncated", "failed")
        values = {name: jobs.c[name] + getattr(step, name) for name in counted}
        values |= {"position": step.position, "line": step.line}
        with self._state.writing() as connection:
            connection.execute(update(jobs).where(jobs.c.number == job.number).values(values))
            _list_errors(connection, job, step.errors)
            return not _find(connection, job.id).has_ended

    def pause(self, job: Job, detail: str) -> None:
        """Record that a job could not continue, and what it waits for."""
        with self._state.writing() as connection:
            _change(connection, job.id, state="waiting", detail=detail)

    def end(self, job_id: str, state: JobEnd, detail: str | None = None) -> Job:
        """Record how a job ended, or raise JobEndedError if it had ended before."""
        with self._state.writing() as connection:
            if not _change(connection, job_id, state=state, detail=detail, ended=utc_now()):
                raise JobEndedError(job_id, _find(connection, job_id).state)
            return _find(connection, job_id)


def _find(connection: Connection, job_id: str) -> Job:
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if row is None:
        raise JobNotFoundError(job_id)
    return Job(*row)


def _change(connection: Connection, job_id: str, **values: Any) -> bool:
    """Change an unfinished job; return False if it has ended."""
    of_job = update(jobs).where(jobs.c.id == job_id, _UNFINISHED)
    return connection.execute(of_job.values(values)).rowcount > 0


def _list_errors(connection: Connection, job: Job, errors: Sequence[LineError]) -> None:
    counted = select(func.count()).where(line_errors.c.job == job.number)
    room = max(0, MAX_LISTED_ERRORS - (connection.scalar(counted) or 0))
    first = sorted(errors, key=lambda error: error.line)[:room]
    if first:
        rows = [{"job": job.number, **asdict(error)} for error in first]
        connection.execute(insert(line_errors), rows)

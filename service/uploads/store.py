"""The jobs of a collection, durable and in the order in which they run."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import Connection, Row, func, insert, select, update

from index.document import Document
from index.sqlite.connections import utc_now
from service.errors import JobEndedError, JobNotFoundError
from service.metrics import JobEnd
from service.schemas import nullable
from service.state import State, jobs, keep_newest, line_errors

JobState = Literal["waiting", "running"] | JobEnd

MAX_LISTED_ERRORS = 100


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that is not a valid document."""

    line: Annotated[int, Field(description="Counted from 1.")]
    pointer: Annotated[str, Field(description="JSON pointer into the line.")]
    detail: str


class Upload(BaseModel, frozen=True):
    """An upload that became a job: it is durable."""

    id: str = Field(description="Of the job: see /jobs/{id}.")
    accepted: int = Field(description="Lines that are not blank.")
    size: int = Field(description="Bytes, decompressed.")
    digest: bytes = Field(exclude=True)  # SHA-256 of the file


class Job(Upload, frozen=True):
    """A job and its progress."""

    state: JobState = Field(
        description="`waiting` and `running` jobs continue by themselves, even after a restart."
    )
    progress: float = Field(description="Share of the bytes that were processed.", ge=0, le=1)
    indexed: int = Field(description="Documents stored; the next match finds them.")
    unchanged: int = Field(description="How many of them had the same text before.")
    truncated: int = Field(description="How many of them were too long to be read whole.")
    failed: int = Field(description="Lines that are not valid documents.")
    detail: str | None = nullable("Why it failed or what it waits for; null otherwise.")
    created: str = Field(description="ISO 8601 in UTC.")
    ended: str | None = nullable("ISO 8601 in UTC; null while it has not ended.")
    number: int = Field(exclude=True)  # jobs of one client run in this order
    client: str = Field(exclude=True)  # whose jobs run in their order; others in turns
    position: int = Field(exclude=True)  # bytes of the upload that were processed
    line: int = Field(exclude=True)  # lines that were processed, blank ones included
    server: str = Field(exclude=True)  # which has the upload; "" for the only one

    @property
    def has_ended(self) -> bool:
        """Whether it is done, cancelled or failed."""
        return self.state not in ("waiting", "running")


class JobResponse(Job, frozen=True):
    """A job with its errors."""

    errors: list[LineError] = Field(
        description="The first 100 lines that are not valid documents; `failed` counts all."
    )


@dataclass(slots=True)
class Batch:
    """A batch of an upload: where it ends, what it adds to the `Job`, and its documents.

    They have different ids, and each has the number of its line.
    """

    position: int
    line: int
    indexed: int = 0
    unchanged: int = 0
    truncated: int = 0
    failed: int = 0
    errors: list[LineError] = field(default_factory=list)
    documents: list[tuple[int, Document]] = field(default_factory=list)


MAX_ENDED_JOBS = 1000  # older ones are deleted

_UNFINISHED = jobs.c.state.in_(("waiting", "running"))


class JobStore:
    """The jobs of one collection."""

    def __init__(self, state: State, server: str = "") -> None:
        """Use an open state, which several servers may share."""
        self._state = state
        self._server = server

    def insert(self, upload: Upload, client: str = "") -> None:
        """Store a new job of a client, durably."""
        row = {
            **dict(upload),
            "state": "waiting",
            "client": client,
            "created": utc_now(),
            "server": self._server,
        }
        with self._state.writing() as connection:
            connection.execute(insert(jobs).values(row))
            keep_newest(connection, jobs.c.number, MAX_ENDED_JOBS, ~_UNFINISHED)

    def find(self, job_id: str) -> JobResponse:
        """Return a job and its first errors."""
        found = select(line_errors.c.line, line_errors.c.pointer, line_errors.c.detail)
        with self._state.reading() as connection:
            job = _find(connection, job_id)
            of_job = found.where(line_errors.c.job == job.number).order_by(line_errors.c.line)
            errors = [LineError(*row) for row in connection.execute(of_job)]
        return JobResponse(**dict(job), errors=errors)

    def newest(self, limit: int, before: str | None) -> list[Job]:
        """Return at most `limit` jobs, the newest first, older than the job `before`."""
        found = select(jobs).order_by(jobs.c.number.desc()).limit(limit)
        with self._state.reading() as connection:
            if before is not None:
                found = found.where(jobs.c.number < _find(connection, before).number)
            return [_job(row) for row in connection.execute(found)]

    def unfinished(self) -> list[Job]:
        """Return the waiting and running jobs of this server, in the order of their uploads."""
        found = (
            select(jobs).where(_UNFINISHED, jobs.c.server == self._server).order_by(jobs.c.number)
        )
        with self._state.reading() as connection:
            return [_job(row) for row in connection.execute(found)]

    def begin(self, job: Job) -> Job | None:
        """Mark an unfinished job as running and return it; None if it has ended."""
        with self._state.writing() as connection:
            is_unfinished = _change(connection, job.id, state="running", detail=None)
            return _find(connection, job.id) if is_unfinished else None

    def advance(self, job: Job, batch: Batch) -> bool:
        """Record a batch; return whether the job continues.

        It is recorded for a job that was cancelled meanwhile, too: the documents are stored.
        """
        added = ("indexed", "unchanged", "truncated", "failed")
        values = {name: jobs.c[name] + getattr(batch, name) for name in added}
        values |= {"position": batch.position, "line": batch.line}
        with self._state.writing() as connection:
            connection.execute(update(jobs).where(jobs.c.number == job.number).values(values))
            counted = select(func.count()).where(line_errors.c.job == job.number)
            room = max(0, MAX_LISTED_ERRORS - (connection.scalar(counted) or 0))
            first = sorted(batch.errors, key=lambda error: error.line)[:room]
            if first:
                rows = [{"job": job.number, **asdict(error)} for error in first]
                connection.execute(insert(line_errors), rows)
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
    return _job(row)


def _job(row: Row[Any]) -> Job:
    return Job(**row._asdict(), progress=round(row.position / row.size, 4))


def _change(connection: Connection, job_id: str, **values: Any) -> bool:
    """Change an unfinished job; return False if it has ended."""
    of_job = update(jobs).where(jobs.c.id == job_id, _UNFINISHED)
    return connection.execute(of_job.values(values)).rowcount > 0

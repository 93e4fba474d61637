"""Responses of the routes of jobs."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from service.api.schemas.fields import nullable
from service.jobs.idempotency import StoredResponse
from service.jobs.job import Job, JobState, LineError, Upload


class AcceptedBody(BaseModel):
    """An upload that became a job: it is durable."""

    id: str = Field(description="Of the job: see /jobs/{id}.")
    accepted: int = Field(description="Lines that are not blank.")
    size: int = Field(description="Bytes, decompressed.")


class LineErrorBody(BaseModel):
    """A line that is not a valid document."""

    line: int = Field(description="Counted from 1.")
    pointer: str = Field(description="JSON pointer into the line.")
    detail: str


class JobBody(AcceptedBody):
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


class JobResponse(JobBody):
    """A job with its errors."""

    errors: list[LineErrorBody] = Field(
        description="The first 100 lines that are not valid documents; `failed` counts all."
    )


class JobsResponse(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobBody]


def accepted_response(prefix: str, upload: Upload) -> StoredResponse:
    """Return the response to an upload below a prefix, as /collections/papers."""
    body = AcceptedBody(id=upload.id, accepted=upload.lines, size=upload.size)
    return StoredResponse(202, body.model_dump_json().encode(), f"{prefix}/jobs/{upload.id}")


def job_body(job: Job) -> JobBody:
    """Return the body of a job."""
    return JobBody.model_validate(job, from_attributes=True)


def job_response(job: Job, errors: Sequence[LineError]) -> JobResponse:
    """Return the body of a job with its errors."""
    shown = [LineErrorBody.model_validate(error, from_attributes=True) for error in errors]
    return JobResponse(**job_body(job).model_dump(), errors=shown)

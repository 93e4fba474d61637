"""Answers of the routes of jobs."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from service.api.schemas.fields import nullable
from service.jobs.idempotency import StoredResponse
from service.jobs.job import Job, JobState, LineError, Upload


class AcceptedBody(BaseModel):
    """An upload that became a job: it is durable."""

    id: str = Field(description="Of the job: look at it at /jobs/{id}.")
    accepted: int = Field(description="Lines that are not blank.")
    size: int = Field(description="Bytes, decompressed.")


class LineErrorBody(BaseModel):
    """A line that gave no document."""

    line: int = Field(description="Counted from 1.")
    pointer: str = Field(description="JSON pointer into the line.")
    detail: str


class JobBody(AcceptedBody):
    """A job, and how far it is."""

    state: JobState = Field(
        description="`waiting` and `running` go on by themselves, also after a restart."
    )
    progress: float = Field(description="Share of the bytes that are dealt with.", ge=0, le=1)
    indexed: int = Field(description="Documents stored, and found by the next match.")
    unchanged: int = Field(description="Those of them whose text was stored already.")
    truncated: int = Field(description="Those of them that were too long to be read whole.")
    failed: int = Field(description="Lines that gave no document.")
    detail: str | None = nullable("Why it failed, or what it waits for; null for nothing.")
    created: str = Field(description="ISO 8601 in UTC.")
    ended: str | None = nullable("The same; null while it has not.")


class JobResponse(JobBody):
    """A job with its errors."""

    errors: list[LineErrorBody] = Field(
        description="The first 100 lines that gave no document; `failed` counts all."
    )


class JobsResponse(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobBody]


def accepted_answer(upload: Upload) -> StoredResponse:
    """Shape the answer to an upload."""
    body = AcceptedBody(id=upload.id, accepted=upload.lines, size=upload.size)
    return StoredResponse(202, body.model_dump_json().encode(), f"/jobs/{upload.id}")


def job_body(job: Job) -> JobBody:
    """Shape a job."""
    return JobBody.model_validate(job, from_attributes=True)


def job_response(job: Job, errors: Sequence[LineError]) -> JobResponse:
    """Shape a job with its errors."""
    shown = [LineErrorBody.model_validate(error, from_attributes=True) for error in errors]
    return JobResponse(**job_body(job).model_dump(), errors=shown)

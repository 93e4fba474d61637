"""GET /jobs, GET /jobs/{id} and POST /jobs/{id}/cancel."""

from typing import Annotated

from fastapi import Path, Query

from service.api.deps import OpenCollectionDep
from service.api.http.problems import (
    INTERNAL_ERROR,
    INVALID_INPUT,
    JOB_ENDED,
    JOB_NOT_FOUND,
    NOT_READY,
    SHUTTING_DOWN,
    STORAGE_FAILED,
    STORAGE_FULL,
)
from service.api.openapi.responses import json_example, problem_responses
from service.api.openapi.router import Router
from service.api.schemas.jobs import JobResponse, JobsResponse, job_body, job_response
from service.threads import run_in

# Clients poll these while a job runs: as operations they do not count in the failure ratios.
router = Router(prefix="/jobs", tags=["operations"])

JOB = {
    "id": "3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f",
    "accepted": 1200,
    "size": 18_400_211,
    "state": "done",
    "progress": 1.0,
    "indexed": 1199,
    "unchanged": 0,
    "truncated": 2,
    "failed": 1,
    "detail": None,
    "created": "2026-01-31T12:00:00+00:00",
    "ended": "2026-01-31T12:04:51+00:00",
}
ANSWER = {**JOB, "errors": [{"line": 17, "pointer": "#/text", "detail": "is empty"}]}
PROBLEMS = (
    JOB_NOT_FOUND, INVALID_INPUT, INTERNAL_ERROR, STORAGE_FULL, STORAGE_FAILED,
    NOT_READY, SHUTTING_DOWN,
)  # fmt: skip

JobId = Annotated[str, Path(alias="id", openapi_examples={"one": {"value": JOB["id"]}})]


@router.get(
    "",
    summary="List the uploads",
    responses={200: json_example({"jobs": [JOB]}, "The jobs"), **problem_responses(*PROBLEMS)},
)
async def get_jobs(
    collection: OpenCollectionDep,
    limit: Annotated[
        int, Query(ge=1, le=100, description="How many.", openapi_examples={"ten": {"value": 10}})
    ] = 20,
    before: Annotated[
        str | None,
        Query(
            description="The id of a job: return older ones.",
            openapi_examples={"page": {"value": JOB["id"]}},
        ),
    ] = None,
) -> JobsResponse:
    """Return the newest jobs first, including the last 1,000 that have ended."""
    jobs = collection.jobs
    found = await run_in(jobs.threads, jobs.store.newest, limit, before)
    return JobsResponse(jobs=[job_body(job) for job in found])


@router.get(
    "/{id}",
    summary="Get the progress of an upload",
    responses={200: json_example(ANSWER, "The job"), **problem_responses(*PROBLEMS)},
)
async def get_job(job_id: JobId, collection: OpenCollectionDep) -> JobResponse:
    """Return counts, progress and the first errors of a job."""
    jobs = collection.jobs
    return job_response(*await run_in(jobs.threads, jobs.store.find, job_id))


@router.post(
    "/{id}/cancel",
    summary="Cancel an upload",
    responses={
        200: json_example({**ANSWER, "state": "cancelled"}, "It stops; what is stored stays"),
        **problem_responses(JOB_ENDED, *PROBLEMS),
    },
)
async def cancel_job(job_id: JobId, collection: OpenCollectionDep) -> JobResponse:
    """Cancel a job.

    The documents that it has stored stay; those of the current batch, at most 64, may still be
    stored and counted.
    """
    jobs = collection.jobs
    await run_in(jobs.threads, jobs.cancel, job_id)
    return job_response(*await run_in(jobs.threads, jobs.store.find, job_id))

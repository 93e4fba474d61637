"""POST /index with JSON Lines, GET /jobs, GET /jobs/{id} and POST /jobs/{id}/cancel."""

from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from service.access import client_of
from service.body import NDJSON, BodyKind
from service.deps import CollectionDep, IdempotencyKey, OpenCollectionDep, respond_once
from service.errors import UnsupportedMediaTypeError
from service.gate import LinesRoute, Rules
from service.openapi import WRITE, Router
from service.state import StoredResponse
from service.threads import run_in
from service.uploads.store import Job, JobResponse, Upload


class JobsResponse(BaseModel):
    """Jobs, the newest first."""

    jobs: list[Job]


# Clients poll these while a job runs: as operations they do not count in the failure ratios.
# They tell what others sent: reading them takes the scope write, too.
router = Router(Rules(scope="write", cost="nothing"), prefix="/jobs", tags=["operations"])

_ID = "3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f"
JobId = Annotated[str, Path(alias="id", openapi_examples={"one": {"value": _ID}})]


@router.get(
    "",
    summary="List the uploads",
    responses=WRITE({200: "The jobs"}, "job-not-found"),
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
            openapi_examples={"page": {"value": _ID}},
        ),
    ] = None,
) -> JobsResponse:
    """Return the newest jobs first, including the last 1,000 that have ended."""
    found = await run_in(collection.jobs.threads, collection.jobs.store.newest, limit, before)
    return JobsResponse(jobs=found)


@router.get(
    "/{id}",
    summary="Get the progress of an upload",
    responses=WRITE({200: "The job"}, "job-not-found"),
)
async def get_job(job_id: JobId, collection: OpenCollectionDep) -> JobResponse:
    """Return counts, progress and the first errors of a job."""
    return await run_in(collection.jobs.threads, collection.jobs.store.find, job_id)


@router.post(
    "/{id}/cancel",
    summary="Cancel an upload",
    responses=WRITE({200: "It stops; what is stored stays"}, "job-ended", "job-not-found"),
)
async def cancel_job(job_id: JobId, collection: OpenCollectionDep) -> JobResponse:
    """Cancel a job.

    The documents that it has stored stay; those of the current batch, at most 64, may still be
    stored and counted.
    """
    jobs = collection.jobs
    await run_in(jobs.threads, jobs.end, job_id, "cancelled")
    return await run_in(jobs.threads, jobs.store.find, job_id)


INDEX_PATH = "/index"
NDJSON_EXAMPLE = (
    '{"id": "articles/ants", "text": "Ants find short paths. …"}\n'
    '{"id": "articles/bees", "title": "Bees", "text": "Bees dance. …", "year": 2021}\n'
)
# How the OpenAPI document describes NDJSON requests: at the route for JSON, since one path and
# method has one description.
LINES_BODY: dict[str, Any] = {
    "content": {
        NDJSON: {
            "schema": {
                "type": "string",
                "minLength": 1,
                "description": "A document on each line: `id` and `text`, optionally `title` and "
                "`metadata`; other fields become metadata. `Content-Encoding: gzip` is accepted.",
            },
            "examples": {"two": {"summary": "Two documents", "value": NDJSON_EXAMPLE}},
        }
    }
}
ACCEPTED: dict[str, Any] = {
    "model": Upload,
    "description": "The lines are durable and will be indexed; Location is the job",
    "headers": {"Location": {"schema": {"type": "string"}, "description": "/jobs/{id}"}},
}


# Must be matched before `router`, which accepts every POST of the path.
lines_router = Router(Rules(body=BodyKind.LINES), tags=["documents"], route_class=LinesRoute)


@lines_router.post(INDEX_PATH, include_in_schema=False)
async def post_lines(
    request: Request, collection: CollectionDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Receive an upload; respond when it is durable, before it is indexed."""
    jobs, prefix = collection.jobs, request.state.prefix
    client, charge = client_of(request.scope), request.state.charge.spend
    announced, gzip = request.state.announced, _is_gzip(request)
    receiving = jobs.receive(request.stream(), charge, client, announced=announced, gzip=gzip)
    async with receiving as (file, upload):

        async def work() -> StoredResponse:
            await jobs.add(file, upload, client)
            body = upload.model_dump_json().encode()
            return StoredResponse(202, body, f"{prefix}/jobs/{upload.id}")

        return await respond_once(request, collection, idempotency_key, work, upload.digest)


def _is_gzip(request: Request) -> bool:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "x-gzip", "identity"):
        raise UnsupportedMediaTypeError("send the lines uncompressed, or as gzip")
    return encoding != "identity"

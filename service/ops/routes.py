"""/livez, /readyz, /metrics, /version, and the meaning of errors at /problems."""

import asyncio
from typing import Annotated

from fastapi import Path
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from service.deps import EngineDep, OpenCollectionDep, OpenEngineDep
from service.engine import DEFAULT, degraded_parts, installed_version, record_state
from service.errors import PROBLEM_TYPES, OverloadedError
from service.gate import Rules, declare
from service.openapi import READ, Router
from service.ops.schemas import (
    CheckpointBody,
    LimitsBody,
    LiveResponse,
    ProblemTypeResponse,
    ReadyResponse,
    VersionResponse,
    calibration_body,
)

router = Router(Rules(collection=False, cost="nothing"), tags=["operations"])


@router.get(
    "/livez",
    summary="Check that the process is alive",
    responses=READ({200: "It is alive"}),
)
@declare(keyless="always", logged=False)
async def get_livez() -> LiveResponse:
    """Answer under any load: an orchestrator restarts a process that does not."""
    return LiveResponse(status="alive")


@router.get(
    "/readyz",
    summary="Check that the service is ready",
    responses=READ({200: "It is ready"}),
)
@declare(keyless="always", logged=False)
async def get_readyz(engine: EngineDep) -> ReadyResponse:
    """Answer 200 if everything is open and every encoder thread runs, under any load.

    The status is `degraded` while a part is down that requests can do without, while no more
    requests are accepted, or while a collection cannot be used and others can. If no active request
    has ended for 30 seconds then, it is not ready.
    """
    degraded = degraded_parts(engine)
    first = next(
        (collection for collection in engine.collections.opened() if collection.name == DEFAULT),
        None,
    )
    return ReadyResponse(
        status="degraded" if degraded else "ready",
        documents=0 if first is None else first.data.documents,
        generation=0 if first is None else first.data.engine.generation,
        degraded=degraded,
    )


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=PlainTextResponse,
    responses=READ({200: "Text exposition format"}),
)
@declare(keyless="information", of_all=True, logged=False)
async def get_metrics(engine: OpenEngineDep) -> Response:
    """Return every metric, even if the service is no longer ready."""
    await asyncio.to_thread(record_state, engine)
    return Response(generate_latest(engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/version",
    summary="Get the version and the limits",
    responses=READ({200: "Version, checkpoint and limits"}),
)
async def get_version(collection: OpenCollectionDep) -> VersionResponse:
    """Return the version, the checkpoint and the limits of a request."""
    engine = collection.engine
    return VersionResponse(
        version=installed_version(),
        checkpoint=CheckpointBody.model_validate(collection.checkpoint, from_attributes=True),
        precision=engine.encoder.precision,
        provider=engine.encoder.provider,
        reranker=None if engine.reranking is None else engine.reranking.reranker.checkpoint.name,
        calibration=calibration_body(collection.calibrator),
        limits=LimitsBody.model_validate(engine.settings),
    )


@router.get(
    "/problems/{name}",
    summary="Get the meaning of a kind of error",
    responses=READ({200: "The kind of error"}, "no-such-route"),
)
@declare(keyless="information")
async def get_problem(
    name: Annotated[
        str, Path(openapi_examples={"overloaded": {"value": OverloadedError.problem_type.name}})
    ],
) -> ProblemTypeResponse:
    """Describe a `type` of problem."""
    if name not in PROBLEM_TYPES:
        raise HTTPException(404)
    kind = PROBLEM_TYPES[name]
    return ProblemTypeResponse(
        type=kind.uri, status=kind.status, title=kind.title, description=kind.description
    )

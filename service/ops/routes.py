"""Operations: /livez, /readyz, /metrics, /version, and the meaning of errors at /problems."""

from typing import Annotated, get_args

from fastapi import Path
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from index.search.records import Mode
from service.deps import EngineDep, OpenCollectionDep, OpenEngineDep
from service.engine import DEFAULT, degraded_parts, record_state
from service.gate import Rules, declare
from service.openapi import READ, Router, json_example
from service.ops.schemas import (
    LiveResponse,
    ProblemTypeResponse,
    ReadyResponse,
    VersionResponse,
    limits_body,
    version_response,
)
from service.problems import OVERLOADED, PROBLEM_TYPES
from service.settings import Settings

router = Router(Rules(collection=False, cost="nothing"), tags=["operations"])

METRICS = """\
# HELP longmatch_requests_total Requests answered.
# TYPE longmatch_requests_total counter
longmatch_requests_total{code="200",method="POST",route="/match"} 17.0
"""
VERSION = {
    "version": "0.1.0",
    "checkpoint": {
        "name": "smith-minilm-l6",
        "fingerprint": "9f2c" * 16,
        "block_length": 128,
        "max_blocks": 512,
        "dimension": 384,
        "reading_share": 1.0,
    },
    "precision": "int8",
    "provider": "CPUExecutionProvider",
    "reranker": "match-ignition-minilm-l4",
    "calibration": {
        "version": "5f1c8ae20b7d+c03e77d1a964",
        "kinds": {
            kind: {
                "method": "platt",
                "calibration_error": 0.021,
                "documents": 3418,
                "thresholds": [{"false_positive_rate": 0.01, "score": 0.508}],
            }
            for kind in get_args(Mode)
        },
    },
    "limits": {
        **limits_body(Settings.model_construct()).model_dump(),
        "rate_limit_tokens_per_minute": 600000,
    },
}
PROBLEM = {
    "type": OVERLOADED.uri,
    "status": OVERLOADED.status,
    "title": OVERLOADED.title,
    "description": OVERLOADED.description,
}


@router.get(
    "/livez",
    summary="Check that the process is alive",
    responses=READ({200: json_example({"status": "alive"}, "It is alive")}),
)
@declare(keyless="always", logged=False)
async def get_livez() -> LiveResponse:
    """Answer under any load: an orchestrator restarts a process that does not."""
    return LiveResponse(status="alive")


@router.get(
    "/readyz",
    summary="Check that the service is ready",
    responses=READ(
        {
            200: json_example(
                {"status": "ready", "documents": 3418, "generation": 3, "degraded": []},
                "It is ready",
            )
        }
    ),
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
        documents=0 if first is None else len(first.data.index),
        generation=0 if first is None else first.data.index.generation,
        degraded=degraded,
    )


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=PlainTextResponse,
    responses=READ(
        {
            200: {
                "description": "Text exposition format",
                "content": {"text/plain": {"examples": {"some": {"value": METRICS}}}},
            }
        }
    ),
)
@declare(keyless="information", of_all=True, logged=False)
async def get_metrics(engine: OpenEngineDep) -> Response:
    """Return every metric, even if the service is no longer ready."""
    record_state(engine)
    return Response(generate_latest(engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/version",
    summary="Get the version and the limits",
    responses=READ({200: json_example(VERSION, "Version, checkpoint and limits")}),
)
async def get_version(collection: OpenCollectionDep) -> VersionResponse:
    """Return the version, the checkpoint and the limits of a request."""
    return version_response(collection)


@router.get(
    "/problems/{name}",
    summary="Get the meaning of a kind of error",
    responses=READ({200: json_example(PROBLEM, "The kind of error")}, "no-such-route"),
)
@declare(keyless="information")
async def get_problem(
    name: Annotated[str, Path(openapi_examples={"overloaded": {"value": OVERLOADED.name}})],
) -> ProblemTypeResponse:
    """Describe a `type` of problem."""
    if name not in PROBLEM_TYPES:
        raise HTTPException(404)
    kind = PROBLEM_TYPES[name]
    return ProblemTypeResponse(
        type=kind.uri, status=kind.status, title=kind.title, description=kind.description
    )

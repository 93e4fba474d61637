"""/livez, /readyz, /metrics, /version, and the meaning of errors at /problems."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Path
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field

from index.search.calibrate import Scoring, served_kinds
from index.search.corpus_calibration import Threshold
from service.deps import EngineDep, OpenCollectionDep, OpenEngineDep
from service.documents.schemas import MAX_DOCUMENTS
from service.embeddings.routes import MAX_INPUTS
from service.engine import DEFAULT, degraded_parts, installed_version, record_state
from service.errors import PROBLEM_TYPES, NoSuchRouteError, ProblemType
from service.feedback.store import MAX_QUERY_BYTES
from service.gate import Rules, declare
from service.match.logic import MAX_EXPLAINED
from service.match.retrieve import DEFAULT_TOP_K, MAX_TOP_K
from service.match.schemas import MAX_CANDIDATES, MAX_QUERIES, RERANK_SECONDS
from service.openapi import READ, Router
from service.schemas import nullable
from service.standing.store import MAX_BYTES, MAX_EVENTS
from service.uploads.files import MAX_RATIO, MAX_UPLOADS, MAX_UPLOADS_OF_CLIENT


class LiveResponse(BaseModel):
    """The process is alive."""

    status: Literal["alive", "ready", "degraded"]


class ReadyResponse(LiveResponse):
    """The service is ready."""

    documents: int = Field(description="Documents in the index of the default collection.")
    generation: int = Field(description="Generation of that index.")
    degraded: list[str] = Field(
        description="What is not well: `engine` and `redis`, while these are down; `words`, "
        "`families` and `blocks`, while these files are behind the store; `active_requests`, while "
        "no more requests are accepted; `storage`, while the disk is full or fails; "
        "`collection NAME`, while this collection cannot be used."
    )


class CheckpointBody(BaseModel):
    """The checkpoint in use."""

    name: str
    fingerprint: str = Field(
        description="Vectors of the same fingerprint and reading share can be compared."
    )
    block_length: int = Field(description="Tokens of a sentence block, special ones included.")
    max_blocks: int = Field(description="Sentence blocks of a document that are read.")
    dimension: int = Field(description="Dimension of a document vector.")
    reading_share: float = Field(
        description="Share of the sentence blocks of a document that the Transformer encodes."
    )


class LimitsBody(BaseModel):
    """The limits of a request: settings, and constants of this version."""

    model_config = ConfigDict(
        from_attributes=True, json_schema_serialization_defaults_required=True
    )

    max_queue_tokens: int
    max_queue_seconds: float
    max_active_requests: int
    rate_limit_tokens_per_minute: int | None = nullable("Of one client; null without a limit.")
    max_body_bytes: int
    max_upload_bytes: int
    max_unfinished_jobs: int = MAX_UPLOADS
    max_unfinished_jobs_per_client: int = MAX_UPLOADS_OF_CLIENT
    max_upload_ratio: float = MAX_RATIO
    max_feedback: int
    max_feedback_bytes: int = MAX_QUERY_BYTES
    max_text_characters: int
    max_documents_per_request: int = MAX_DOCUMENTS
    max_queries_per_request: int = MAX_QUERIES
    max_embedding_inputs: int = MAX_INPUTS
    max_explained_matches: int = MAX_EXPLAINED
    max_standing_queries: int
    max_standing_query_bytes: int = MAX_BYTES
    max_standing_events: int = MAX_EVENTS
    max_top_k: int = MAX_TOP_K
    default_top_k: int = DEFAULT_TOP_K
    max_rerank_candidates: int = MAX_CANDIDATES
    rerank_seconds: float = RERANK_SECONDS


class KindBody(BaseModel):
    """The calibration of one kind of score."""

    method: str | None = nullable(
        "How the map to probabilities was fitted: `platt`; null without a map."
    )
    calibration_error: float | None = nullable(
        "Expected calibration error of the map on corpora that it was not fitted on; on queries, "
        "if it was fitted to feedback."
    )
    documents: int | None = nullable(
        "Documents whose random pairs were measured; null if the data directory has not been "
        "calibrated."
    )
    thresholds: Sequence[Threshold] = Field(description="By false positive rate.")


class CalibrationBody(BaseModel):
    """The calibration of scores, by kind of score."""

    version: str | None = nullable("As in every response of POST /match; null without one.")
    kinds: dict[str, KindBody]


class VersionResponse(BaseModel):
    """The version, the checkpoint and the limits of the service."""

    version: str
    checkpoint: CheckpointBody
    precision: str
    provider: str
    reranker: str | None = nullable("Name of the reranker; null without one.")
    calibration: CalibrationBody
    limits: LimitsBody


def calibration_body(scoring: Scoring) -> CalibrationBody:
    """Return the body of a calibration."""
    return CalibrationBody(
        version=scoring.version,
        kinds={
            kind: KindBody(
                method=None if fitted is None else "platt",
                calibration_error=None if fitted is None else fitted.error.equal_mass,
                documents=None if measured is None else measured.documents,
                thresholds=() if measured is None else measured.thresholds,
            )
            for kind, (fitted, measured) in served_kinds(scoring).items()
        },
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
    first = {member.name: member.data for member in engine.collections.opened()}.get(DEFAULT)
    return ReadyResponse(
        status="degraded" if degraded else "ready",
        documents=0 if first is None else first.documents,
        generation=0 if first is None else first.engine.generation,
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
        calibration=calibration_body(collection.scoring.present),
        limits=LimitsBody.model_validate(engine.settings),
    )


@router.get(
    "/problems/{name}",
    summary="Get the meaning of a kind of error",
    responses=READ({200: "The kind of error"}, "no-such-route"),
)
@declare(keyless="information")
async def get_problem(
    name: Annotated[str, Path(openapi_examples={"overloaded": {"value": "overloaded"}})],
) -> ProblemType:
    """Describe a `type` of problem."""
    if name not in PROBLEM_TYPES:
        raise NoSuchRouteError
    return PROBLEM_TYPES[name]

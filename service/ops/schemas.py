"""Responses of the operational routes."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from encoder.calibration import FittedMap
from index.search.calibrate import ScoreCalibrator, served_kinds
from index.search.corpus_calibration import NullDistribution
from service.documents.schemas import MAX_DOCUMENTS
from service.embeddings.schemas import MAX_INPUTS
from service.feedback.store import MAX_QUERY_BYTES
from service.match.logic import MAX_EXPLAINED
from service.match.retrieve import DEFAULT_TOP_K, MAX_TOP_K
from service.match.schemas import MAX_CANDIDATES, MAX_QUERIES, RERANK_SECONDS
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
        description="What is not well: `redis`, while it is down; `words`, `families` and "
        "`blocks`, while these files are behind the store; `active_requests`, while no more "
        "requests are accepted; `storage`, while the disk is full or fails; `collection NAME`, "
        "while this collection cannot be used."
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


class ThresholdBody(BaseModel):
    """The score that a given share of random pairs of the corpus reaches."""

    false_positive_rate: float
    score: float


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
    thresholds: list[ThresholdBody] = Field(description="By false positive rate.")


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


class ProblemTypeResponse(BaseModel):
    """The meaning of a kind of error."""

    type: str = Field(description="The `type` member of a problem.")
    status: int
    title: str
    description: str


def calibration_body(calibrator: ScoreCalibrator) -> CalibrationBody:
    """Return the body of a calibration."""
    return CalibrationBody(
        version=calibrator.version,
        kinds={
            kind: _kind(fitted, measured)
            for kind, (fitted, measured) in served_kinds(calibrator).items()
        },
    )


def _kind(fitted: FittedMap | None, measured: NullDistribution | None) -> KindBody:
    return KindBody(
        method=None if fitted is None else "platt",
        calibration_error=None if fitted is None else fitted.error.equal_mass,
        documents=None if measured is None else measured.documents,
        thresholds=[
            ThresholdBody.model_validate(threshold, from_attributes=True)
            for threshold in (() if measured is None else measured.thresholds)
        ],
    )

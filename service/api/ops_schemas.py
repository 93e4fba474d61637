"""Answers of the operational routes."""

from typing import Literal

from pydantic import BaseModel, Field

from service.engine import Engine, installed_version


class LiveResponse(BaseModel):
    """The process answers."""

    status: Literal["alive", "ready"]


class ReadyResponse(LiveResponse):
    """The service can work."""

    documents: int = Field(description="Documents in the index.")
    generation: int = Field(description="Generation of the index.")


class CheckpointBody(BaseModel):
    """The checkpoint in use."""

    name: str
    fingerprint: str = Field(description="Vectors of equal fingerprints can be compared.")
    block_length: int = Field(description="Tokens of a sentence block, special ones included.")
    max_blocks: int = Field(description="Sentence blocks of a document that are read.")
    dimension: int = Field(description="Width of a document vector.")


class LimitsBody(BaseModel):
    """The limits of a request, all of them settings."""

    max_queue_tokens: int
    max_active_requests: int
    max_body_bytes: int
    max_text_characters: int
    max_documents_per_request: int
    max_queries_per_request: int
    max_top_k: int
    default_top_k: int


class VersionResponse(BaseModel):
    """What is running."""

    version: str
    checkpoint: CheckpointBody
    precision: str
    provider: str
    limits: LimitsBody


class ProblemTypeResponse(BaseModel):
    """What a kind of error means."""

    type: str = Field(description="The `type` member of a problem.")
    status: int
    title: str
    description: str


def version_response(engine: Engine) -> VersionResponse:
    """Describe what an engine runs and what it accepts."""
    return VersionResponse(
        version=installed_version(),
        checkpoint=CheckpointBody.model_validate(engine.checkpoint, from_attributes=True),
        precision=engine.encoder.precision,
        provider=engine.encoder.provider,
        limits=LimitsBody.model_validate(engine.settings, from_attributes=True),
    )

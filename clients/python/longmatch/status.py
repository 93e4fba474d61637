"""What is answered about jobs and about the service itself."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that became a job: durable, and indexed in the background.

    Attributes:
        id: of the job.
        accepted: lines that are not blank.
        size: bytes, decompressed.
    """

    id: str
    accepted: int
    size: int


@dataclass(frozen=True, slots=True)
class LineError:
    """A line of an upload that is no valid document; lines are counted from 1."""

    line: int
    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and its progress.

    Attributes:
        id: of the job.
        accepted: lines that are not blank.
        size: bytes, decompressed.
        state: "waiting", "running", "done", "cancelled" or "failed".
        progress: share of the bytes that were processed.
        indexed: documents stored.
        unchanged: of these, how many had the same text before.
        truncated: of these, how many were too long to be read whole.
        failed: lines that are not valid documents.
        detail: why it failed, or what it waits for.
        created: ISO 8601 in UTC.
        ended: ISO 8601 in UTC; None while it has not.
        errors: the first lines that are not valid documents; empty in a list of jobs.
    """

    id: str
    accepted: int
    size: int
    state: str
    progress: float
    indexed: int
    unchanged: int
    truncated: int
    failed: int
    detail: str | None
    created: str
    ended: str | None
    errors: list[LineError] | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The service is ready; `degraded` names what is not well."""

    status: str
    documents: int
    generation: int
    degraded: list[str]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that gives embeddings."""

    id: str
    created: int
    owned_by: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint in use."""

    name: str
    fingerprint: str
    block_length: int
    max_blocks: int
    dimension: int
    reading_share: float


@dataclass(frozen=True, slots=True)
class Adapter:
    """The adapter that was fitted to the corpus; `digest` is None if there is none."""

    digest: str | None
    documents: int | None
    dimension: int


@dataclass(frozen=True, slots=True)
class Version:
    """The version, the checkpoint and the limits of the service.

    Attributes:
        version: of the server.
        checkpoint: in use.
        adapter: in use.
        precision: of the graphs.
        provider: of ONNX Runtime.
        reranker: its name, if there is one.
        calibration: of the scores, as JSON.
        limits: of a request, by name.
    """

    version: str
    checkpoint: Checkpoint
    adapter: Adapter
    precision: str
    provider: str
    reranker: str | None
    calibration: dict[str, Any]
    limits: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """A collection in the list of all.

    Attributes:
        name: in paths.
        state: "open" or "unavailable".
        detail: why it is unavailable.
        documents: in its index.
        generation: of its index.
        sequence: number of the last change that the index holds.
    """

    name: str
    state: str
    detail: str | None
    documents: int | None
    generation: int | None
    sequence: int | None


@dataclass(frozen=True, slots=True)
class CollectionState:
    """A collection: what `CollectionSummary` says, and what is its own.

    Attributes:
        reading_share: share of the sentence blocks that the Transformer encodes.
        adapter: fitted to its corpus.
        calibration: of its scores, as JSON.
    """

    name: str
    state: str
    detail: str | None
    documents: int | None
    generation: int | None
    sequence: int | None
    reading_share: float | None
    adapter: Adapter | None
    calibration: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class FileText:
    """What a file says: its title, its text, and the number of characters of this."""

    title: str
    text: str
    characters: int


@dataclass(frozen=True, slots=True)
class ProblemType:
    """The meaning of the `type` of an error."""

    type: str
    status: int
    title: str
    description: str

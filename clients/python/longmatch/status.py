"""What is answered about jobs, standing queries and the service itself."""

from dataclasses import dataclass, field
from typing import Any

from longmatch.results import Receipt


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
class Job(Upload):
    """A job and its progress.

    Attributes:
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
class Version:
    """The version, the checkpoint and the limits of the service.

    Attributes:
        version: of the server.
        checkpoint: in use.
        precision: of the graphs.
        provider: of ONNX Runtime.
        reranker: its name, if there is one.
        calibration: of the scores, as JSON.
        limits: of a request, by name.
    """

    version: str
    checkpoint: Checkpoint
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
class CollectionState(CollectionSummary):
    """A collection by itself.

    Attributes:
        reading_share: share of the sentence blocks that the Transformer encodes.
        calibration: of its scores, as JSON.
    """

    reading_share: float | None
    calibration: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class FileText:
    """What a file says: title, text, how many characters this has, and metadata of the file."""

    title: str
    text: str
    metadata: dict[str, Any]
    characters: int


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a field of the metadata, and how many documents have it."""

    value: Any
    documents: int


@dataclass(frozen=True, slots=True)
class Facet:
    """A field of the metadata: how many documents have it, and its most frequent values."""

    field: str
    documents: int
    values: list[FacetValue]


@dataclass(frozen=True, slots=True)
class MapCluster:
    """A part of the map: its middle, and its telling words."""

    x: int
    y: int
    words: list[str]


@dataclass(frozen=True, slots=True)
class DocumentMap:
    """A point for each document.

    Attributes:
        sequence: number of the last change of the documents that it shows.
        progress: share that is made of the present map; None: this is that map.
        documents: of the collection; those shown may be fewer.
        ids: of the documents shown; the same order have the next four.
        x: from 0 to 65535.
        y: the same.
        cluster: place of that of the document in `clusters`.
        value: place in `values`; -1 for none of them.
        clusters: of neighbours.
        fields: of the metadata, that can be asked for.
        values: the frequent ones of that.
    """

    sequence: int
    progress: float | None
    documents: int
    ids: list[str]
    x: list[int]
    y: list[int]
    clusters: list[MapCluster]
    cluster: list[int]
    fields: list[str]
    values: list[Any]
    value: list[int]


@dataclass(frozen=True, slots=True)
class ProblemType:
    """The meaning of the `type` of an error."""

    type: str
    status: int
    title: str
    description: str


@dataclass(frozen=True, slots=True)
class WebhookState:
    """The webhook of a standing query.

    Attributes:
        url: without path and query.
        secret: that signs its messages, given once, by the call that sets it.
        state: "active", "retrying" or "failed".
        delivered: number of the last event that was received.
        attempts: to deliver the next one, which all failed.
        failure: why the last attempt failed.
        retry_at: when the next one is due, ISO 8601 in UTC.
    """

    url: str
    secret: str | None = field(repr=False)
    state: str
    delivered: int
    attempts: int
    failure: str | None
    retry_at: str | None


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """What new documents are compared with.

    Attributes:
        id: given by the server.
        document: id of a stored document; None for a text.
        title: of the text.
        mode: by what documents are scored.
        filter: that their metadata must pass.
        min_score: None where it does not count, as the next two.
        min_probability: of a match.
        max_false_positive_rate: of its score.
        receipt: what was read of the text.
        created: ISO 8601 in UTC.
        webhook: where events are sent.
        paused: nothing is compared or sent.
        detail: why new documents wait and are not compared.
    """

    id: str
    document: str | None
    title: str
    mode: str
    filter: dict[str, Any] | None
    min_score: float | None
    min_probability: float | None
    max_false_positive_rate: float | None
    receipt: Receipt | None
    created: str
    webhook: WebhookState | None
    paused: bool
    detail: str | None

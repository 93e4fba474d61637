"""Every setting of the service: its name, type, default and meaning."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from index.search.records import DEFAULT_ALIGNMENT
from index.vectors.vector_index import Precision
from service.configuration.access import AccessSettings
from service.configuration.device import DeviceSettings
from service.configuration.names import Names
from service.configuration.standing import StandingSettings

LogFormat = Literal["text", "json"]
LogLevel = Literal["critical", "error", "warning", "info", "debug"]


class Settings(DeviceSettings, AccessSettings, StandingSettings):
    """Settings of the service, read from `LONGMATCH_*` variables or given by name."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    data: Path = Field(
        default=Path("longmatch-data"),
        description="The data directory: documents, vectors, index, snapshots. Created if missing.",
    )
    checkpoint: Path | None = Field(
        default=None,
        description="The checkpoint directory, or the name of one that ships: best (the default) "
        "or fast. Vectors of different checkpoints are never compared.",
    )
    precision: str | None = Field(
        default=None,
        description="Which graphs of the checkpoint to run (int8, fp16, fp32); "
        "by default, the best for the device.",
    )
    index_precision: Precision | None = Field(
        default=None,
        description="Number format of the vectors in the index (int8, fp16, fp32); the document "
        "store keeps them in fp32, and the scores of matches are computed from those. By default, "
        "that of the present snapshot, or int8. Another one than that of the snapshot: the index "
        "is built again at the start.",
    )
    providers: Names = Field(
        default=(),
        description="ONNX Runtime execution providers in order of preference, separated by "
        "commas, of cuda and cpu; by default, CUDA if available, else CPU.",
    )
    reading_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        multiple_of=0.01,
        allow_inf_nan=False,
        description="Share of the sentence blocks of a document that the Transformer encodes, "
        "selected by their words; the words of all are counted. By default, that of the data "
        "directory, 1 for a new one; another one is refused.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="Encoder threads; by default, one for each usable core.",
    )
    search_processes: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Processes beside the server that search, each on one core at a time and with "
        "an index in its own memory; 0: threads of the server search, of which one at a time "
        "computes.",
    )
    max_queue_tokens: int = Field(
        default=262_144,
        ge=1,
        description="Tokens that may wait for the encoder, of all requests together; more are "
        "rejected with 503. Must hold the longest document that the checkpoint reads.",
    )
    max_queue_seconds: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds of work, at the measured speed of the encoder, that may be queued "
        "ahead of a new request; with more, it is rejected with 503. The limit falls to a tenth "
        "while most requests are rejected. A lower value shortens waiting, a higher one rejects "
        "fewer requests.",
    )
    max_active_requests: int = Field(
        default=256,
        ge=1,
        description="Requests that may be active at a time; more are rejected with 503. One whose "
        "response is being sent is no longer active.",
    )
    max_body_bytes: int = Field(
        default=16 * 1024 * 1024, ge=1, description="Bytes of a request body."
    )
    max_upload_bytes: int = Field(
        default=4 * 1024**3,
        ge=1,
        description="Bytes of an NDJSON upload to POST /index, as sent and decompressed. Each "
        "line may have `max_body_bytes`.",
    )
    max_collections: int = Field(
        default=64,
        ge=0,
        description="Collections besides the default one; more are refused with 409, or at start.",
    )
    max_unfinished_jobs: int = Field(
        default=32,
        ge=1,
        description="Uploads to one collection that may be received, waiting or indexed at a time; "
        "more are rejected with 503.",
    )
    max_unfinished_jobs_per_client: int = Field(
        default=16,
        ge=1,
        description="The same, of one client, by its API key or its address; those of different "
        "clients are indexed in turns.",
    )
    max_upload_ratio: float = Field(
        default=100.0,
        ge=1,
        allow_inf_nan=False,
        description="How many times larger a gzip upload may be decompressed, beyond its first "
        "MiB; more is rejected with 413.",
    )
    max_waiting_upload_bytes: int = Field(
        default=16 * 1024**3,
        ge=1,
        description="Bytes, decompressed, of all uploads that are received, waiting or indexed; "
        "more are rejected with 503.",
    )
    disk_reserve_bytes: int = Field(
        default=256 * 1024**2,
        ge=0,
        description="Free bytes of the disk that uploads leave for the store; an upload that would "
        "take them is rejected with 507.",
    )
    max_idempotency_keys: int = Field(
        default=100_000,
        ge=1,
        description="Responses stored under their Idempotency-Key; of more in 24 hours, the oldest "
        "are deleted.",
    )
    upload_seconds: float = Field(
        default=10.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a request may take to arrive, plus one for each 64 KiB of its "
        "body; a slower one is rejected with 408.",
    )
    download_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds for which a client may take nothing of its response; then it is "
        "disconnected. Reading at `download_bytes_per_second` makes up for them.",
    )
    download_bytes_per_second: float = Field(
        default=16_384.0,
        gt=0,
        allow_inf_nan=False,
        description="Bytes of a response that a client must take in a second, in the mean; a "
        "slower one is disconnected.",
    )
    max_unsent_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1,
        description="Bytes of responses that wait for their clients, of all together; above it the "
        "slowest clients are disconnected.",
    )
    rate_limit_tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Tokens a minute that one client, by its address, may use; more are rejected "
        "with 429. A body costs one token for four bytes.",
    )
    block_cache_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=0,
        description="Memory of the cache of block vectors; not used with Redis.",
    )
    redis_url: str | None = Field(
        default=None,
        description="A Redis, as redis://HOST:6379/0 (rediss:// and unix://, too): block vectors "
        "and rate counters. The service works without it while it is down.",
    )
    max_feedback: int = Field(
        default=100_000,
        ge=0,
        description="Verdicts that one collection keeps; more are refused with 409; 0 for none.",
    )
    max_feedback_bytes: int = Field(
        default=256 * 1024**2,
        ge=0,
        description="Bytes, compressed, of the texts that they are about; more are refused, too.",
    )
    max_text_characters: int = Field(
        default=2_000_000, ge=1, description="Characters of the text of one document."
    )
    max_documents_per_request: int = Field(
        default=256, ge=1, description="Documents in one POST /index."
    )
    max_queries_per_request: int = Field(
        default=32, ge=1, description="Queries in one POST /match."
    )
    max_embedding_inputs: int = Field(
        default=2048, ge=1, description="Texts in one POST /v1/embeddings."
    )
    max_explained_matches: int = Field(
        default=100, ge=1, description="Matches explained in one POST /match, of all its queries."
    )
    max_top_k: int = Field(default=1000, ge=1, description="Matches that a query may request.")
    default_top_k: int = Field(
        default=10, ge=1, description="Matches returned if the request does not say how many."
    )
    reranker: Path | None = Field(
        default=None,
        description="The directory of a reranker; without one, `rerank` in POST /match is invalid.",
    )
    max_rerank_candidates: int = Field(
        default=200, ge=1, description="Candidates of one query that may be reranked."
    )
    rerank_seconds: float = Field(
        default=5.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that reranking a query may take if the request does not say; also the "
        "most that a request may ask for.",
    )
    drain_seconds: float = Field(
        default=30.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that active requests may take to finish when the service stops.",
    )
    target_recall: float = Field(
        default=0.95,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the 10 exact neighbours that a search must find: a new index "
        "generation must reach it, and nprobe is adapted to maintain it.",
    )
    recall_sample_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the vector searches that are repeated with exact search, in the "
        "background, to measure their recall.",
    )
    alignment_budget_ms: float = Field(
        default=DEFAULT_ALIGNMENT.budget_seconds * 1000,
        ge=0,
        allow_inf_nan=False,
        description="Milliseconds that aligning the candidates of one query may take; out of time, "
        "matches keep the order of the stage before. 0: nothing is aligned.",
    )
    find_families: bool = Field(
        default=True,
        description="Compare each new text with the stored ones, to find near-duplicates; without "
        "it, `collapse` uses only those that were found before.",
    )
    maintenance_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds between rounds of maintenance: retraining and publishing the index, "
        "freeing disk space.",
    )
    log_format: LogFormat = Field(
        default="text", description="Form of a line of the log: text, or JSON."
    )
    log_level: LogLevel = Field(default="info", description="Least severe level that is logged.")

    @model_validator(mode="after")
    def _default_within_limit(self) -> "Settings":
        if self.default_top_k > self.max_top_k:
            raise ValueError(
                f"default_top_k ({self.default_top_k}) is over max_top_k ({self.max_top_k})"
            )
        return self

"""Every setting of the service: its name, type, default and meaning."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from index.search.records import DEFAULT_ALIGNMENT
from index.vectors.milvus.connection import MilvusAddress, parse_milvus_url
from index.vectors.vector_index import Precision

_HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+")

FAISS = "faiss"

LogFormat = Literal["text", "json"]
LogLevel = Literal["critical", "error", "warning", "info", "debug"]


class VectorSettings(BaseSettings):
    """Settings of the engine that holds the vectors to search; every command reads them."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    vectors: str = Field(
        default=FAISS,
        description="What holds the vectors to search: faiss, in the process; a Milvus server, as "
        "milvus://HOST:19530/DATABASE (milvus+tls:// with TLS; USER:PASSWORD@ before the host); or "
        "Milvus Lite, as milvus:///FOLDER.db. Another one than before: the index is built again "
        "from the document store at the start. Every command reads it.",
    )
    vectors_seconds: float = Field(
        default=10.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a request to Milvus may take.",
    )
    vectors_load_seconds: float = Field(
        default=600.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that Milvus may take to write vectors to its disk, and to build or "
        "load an index.",
    )

    @field_validator("vectors")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if value != FAISS:
            parse_milvus_url(value)
        return value

    @property
    def milvus(self) -> MilvusAddress | None:
        """The Milvus that holds the vectors; None for FAISS."""
        if self.vectors == FAISS:
            return None
        return parse_milvus_url(
            self.vectors, seconds=self.vectors_seconds, load_seconds=self.vectors_load_seconds
        )


class Settings(VectorSettings):
    """Settings of the service, read from `LONGMATCH_*` variables or given by name."""

    data: Path = Field(
        default=Path("longmatch-data"),
        description="The data directory: documents, vectors, index, snapshots. Created if missing.",
    )
    checkpoint: Path | None = Field(
        default=None, description="The checkpoint directory; by default, the one that ships."
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
    providers: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="ONNX Runtime execution providers in order of preference, separated by "
        "commas; by default, CUDA if available, else CPU.",
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
        "ahead of a new request; with more, it is rejected with 503. The limit falls to a quarter "
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
        description="Collections besides the default one; more are refused with 409. With more in "
        "the data directory, the service does not start.",
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
    allow_anonymous: bool = Field(
        default=False,
        description="Listen on an address that others can reach although there are no API keys.",
    )
    open_metrics: bool = Field(
        default=True, description="Serve /metrics without an API key, where there are keys."
    )
    open_docs: bool = Field(
        default=True,
        description="Serve /, /docs, /openapi.json and /problems without an API key, where there "
        "are keys.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Names, separated by commas, under which clients reach the service, in "
        "addition to those that are always allowed: on a loopback address, localhost and loopback "
        "addresses; on another one, every address and every name without a dot. *.example.com "
        "stands for all names below, * for any name.",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Addresses or networks of the proxies whose X-Forwarded-For names the client, "
        "separated by commas; by default, the header is ignored.",
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
        description="The directory of a reranker, or the name of one that ships; without one, "
        "`rerank` in POST /match is invalid.",
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

    @field_validator("providers", "allowed_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _host_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not _HOST_NAME.fullmatch(one):
                raise ValueError(
                    f"{one!r} is no host name: give names or addresses without scheme and port"
                )
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                ipaddress.ip_network(one)
            except ValueError as error:
                raise ValueError(f"{one!r} is no address and no network: {error}") from error
        return value

    @model_validator(mode="after")
    def _precision_of_engine(self) -> "Settings":
        if self.vectors != FAISS and self.index_precision not in (None, "fp32"):
            raise ValueError(
                f"index_precision is {self.index_precision}, and Milvus holds vectors in fp32"
            )
        return self

    @model_validator(mode="after")
    def _default_within_limit(self) -> "Settings":
        if self.default_top_k > self.max_top_k:
            raise ValueError(
                f"default_top_k ({self.default_top_k}) is over max_top_k ({self.max_top_k})"
            )
        return self

"""Every setting of the service: its name, type, default and meaning."""

import ipaddress
import re
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from index.search.records import DEFAULT_ALIGNMENT
from index.vectors.vector_index import Precision
from service.errors import SettingsError
from service.former import FORMER_SETTINGS

T = TypeVar("T")
LogFormat = Literal["text", "json"]
LogLevel = Literal["critical", "error", "warning", "info", "debug"]

PREFIX = "LONGMATCH_"
# Variables that are no settings: the key of a client, those of tests, and those that Kubernetes and
# `docker --link` set for a service of the name `longmatch`.
_FOREIGN = re.compile(
    r"LONGMATCH_(API_KEY|TEST_\w+|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|"
    r"(\w+_)?PORT(_[0-9]+_[A-Z]+(_[A-Z]+)?)?)"
)
_ALLOWED_HOST = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+")
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9._-]*")  # and no address


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _allowed_host(host: str) -> str:
    if not _ALLOWED_HOST.fullmatch(host):
        raise ValueError(f"{host!r} is no host name: give names or addresses without port")
    return host


def _network(host: str) -> str:
    ipaddress.ip_network(host)
    return host


def _webhook_host(host: str) -> str:
    return host if _HOST_NAME.fullmatch(host) else _network(host)


Several = Annotated[tuple[T, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """Settings of the service, read from `LONGMATCH_*` variables or given by name."""

    model_config = SettingsConfigDict(
        env_prefix="LONGMATCH_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    data: Path = Field(
        default=Path("longmatch-data"),
        description="The data directory: documents, vectors, index, snapshots. Created if missing.",
    )
    database: str | None = Field(
        default=None,
        pattern="^postgresql://",
        description="A PostgreSQL, as postgresql://USER@HOST/DATABASE, that keeps the documents, "
        "jobs, answers to Idempotency-Key, feedback and standing queries of any number of servers; "
        "by default, they are in the data directory. Every command reads it.",
    )
    engine: str | None = Field(
        default=None,
        pattern=r"^(qdrant|https?)://([^/?#@]+@)?[^/?#@]+(/[^?#]*)?(\?grpc_port=[0-9]+)?$",
        description="A Qdrant that searches, as qdrant://HOST:6333, or https://KEY@HOST:6333 with "
        "the key that it wants; with ?grpc_port=6334 by gRPC. By default, the process searches "
        "itself. Every command reads it.",
    )
    encoder: Annotated[str | None, BeforeValidator(_text)] = Field(
        default=None,
        description="The encoder: best or fast, which ship, a folder, a sentence model, or the URL "
        "of a server of embeddings. By default, that of the data directory, best for a new one. "
        "Vectors of different encoders are never compared.",
    )
    encoder_key: SecretStr | None = Field(
        default=None, description="What a server of embeddings gets as Authorization: Bearer."
    )
    precision: str | None = Field(
        default=None,
        description="Which graphs of the checkpoint to run (int8, fp16, fp32); "
        "by default, the best for the device. Every command reads it.",
    )
    index_precision: Precision | None = Field(
        default=None,
        description="Number format of the vectors in the index (int8, fp16, fp32); the document "
        "store keeps them in fp32, and the scores of matches are computed from those. By default, "
        "that of the present snapshot, or int8. If it differs from "
        "that of the snapshot, the index is built again at the start.",
    )
    providers: Several[str] = Field(
        default=(),
        description="ONNX Runtime execution providers in order of preference, separated by "
        "commas, of cuda and cpu; by default, CUDA if available, else CPU. Every command reads it.",
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
        description="Encoder threads; by default, one for each usable core. Every command reads "
        "it.",
    )
    search_processes: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Additional processes that search, each on one core at a time and with an "
        "index in its own memory; 0: threads of the server search, of which one at a time "
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
    disk_reserve_bytes: int = Field(
        default=256 * 1024**2,
        ge=0,
        description="Free bytes of the disk that writes leave, so that a delete can make room; a "
        "write that would take them is rejected with 507.",
    )
    rate_limit_tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Tokens a minute that one client may use, by its API key or else by its "
        "address; more are rejected with 429. A body costs one token for four bytes.",
    )
    allow_anonymous: bool = Field(
        default=False,
        description="Listen on an address that others can reach although there are no API keys.",
    )
    open_information: bool = Field(
        default=True,
        description="Serve /metrics, /, /docs, /openapi.json and /problems without an API key, "
        "where there are keys.",
    )
    allowed_hosts: Several[Annotated[str, AfterValidator(_allowed_host)]] = Field(
        default=(),
        description="Names, separated by commas, under which clients reach the service, in "
        "addition to those that are always allowed: on a loopback address, localhost and loopback "
        "addresses; on another one, every address and every name without a dot. *.example.com "
        "stands for all names below, * for any name.",
    )
    trusted_proxies: Several[Annotated[str, AfterValidator(_network)]] = Field(
        default=(),
        description="Addresses or networks of the proxies whose X-Forwarded-For names the client, "
        "separated by commas; by default, the header is ignored.",
    )
    tls_certificate: Path | None = Field(
        default=None,
        description="PEM file of the server's certificate, with those that lead to its authority; "
        "with it, the service is reached by https:// alone.",
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file of its private key; by default, it is in the same file."
    )
    tls_client_authority: Path | None = Field(
        default=None,
        description="The certificates of authorities, in a PEM file: with it, a client needs a "
        "certificate of one of them to connect at all.",
    )
    block_cache_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=0,
        description="Memory of the cache of block vectors; 0 for none.",
    )
    redis_url: str | None = Field(
        default=None,
        description="A Redis, as redis://HOST:6379/0 (rediss:// and unix://, too), in which "
        "servers count rates together. The service works without it while it is down.",
    )
    max_feedback: int = Field(
        default=100_000,
        ge=0,
        description="Verdicts that one collection keeps; more are refused with 409; 0 for none.",
    )
    max_standing_queries: int = Field(
        default=1000,
        ge=0,
        description="Standing queries of one collection; more are refused with 409.",
    )
    webhook_hosts: Several[Annotated[str, AfterValidator(_webhook_host)]] = Field(
        default=(),
        description="Names, addresses and networks, separated by commas, that webhooks may reach "
        "without TLS and although they are not public; others must be public, by https.",
    )
    max_text_characters: int = Field(
        default=2_000_000, ge=1, description="Characters of the text of one document."
    )
    reranker: Path | None = Field(
        default=None,
        description="The directory of a reranker; without one, `rerank` in POST /match is invalid.",
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
        description="Seconds between rounds of maintenance: retraining and publishing the index.",
    )
    log_format: LogFormat = Field(
        default="text", description="Form of a line of the log: text, or JSON."
    )
    log_level: LogLevel = Field(default="info", description="Least severe level that is logged.")

    @model_validator(mode="after")
    def _one_searches(self) -> Self:
        if self.search_processes and (self.engine is not None or self.database is not None):
            raise ValueError(
                "LONGMATCH_SEARCH_PROCESSES: 0 where LONGMATCH_ENGINE searches instead of them, or "
                "servers share LONGMATCH_DATABASE"
            )
        return self


def check_environment(names: Collection[str]) -> None:
    """Refuse `LONGMATCH_` variables that nothing reads: a typing error would change nothing.

    Raises:
        SettingsError: there is such a variable; names what replaces it, or the nearest setting.
    """
    known = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    for name in sorted(name.upper() for name in names):
        if not name.startswith(PREFIX) or name in known or _FOREIGN.fullmatch(name):
            continue
        instead = FORMER_SETTINGS.get(name.removeprefix(PREFIX))
        if instead is not None:
            raise SettingsError(f"{name} is not a setting any more: {instead}")
        (nearest,) = get_close_matches(name, known, n=1, cutoff=0.0)
        raise SettingsError(f"{name} is not a setting; the nearest name is {nearest}")

"""The parts of a running service; `service.startup` opens and closes them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.directory.data_directory import DataDirectory
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.sqlite.failures import is_full
from service.background.maintenance import Maintenance, record_index_metrics
from service.background.recall_monitor import RecallMonitor
from service.jobs.runner import Jobs
from service.limits.admission import Admission
from service.limits.rate_limit import RateLimiter
from service.limits.redis_client import RedisClient
from service.metrics import Metrics
from service.settings import Settings
from service.workers.encode_cache import EncodeCache
from service.workers.rerank_pool import RerankPool
from service.workers.scheduler import EncodeScheduler

STUCK_SECONDS = 30.0  # a service without a free place for so long is not ready


@dataclass(frozen=True, slots=True)
class Engine:
    """What `open_engine` opened; behaviour is in the functions that take it.

    Attributes:
        settings: it was opened with.
        checkpoint: of the encoder.
        tokenizer: text -> sentence blocks.
        encoder: sentence blocks -> vectors.
        data: documents, vectors, index.
        calibrator: turns scores into probabilities and false positive rates.
        fusion: joins the scores of vectors and words.
        scheduler: the encoder threads and their queue.
        reranking: the reranker with its threads, if one is set.
        admission: the limit on active requests.
        jobs: uploads indexed in the background, and responses stored for Idempotency-Key.
        redis: shared with other servers, if one is set.
        rate_limiter: counts the tokens of each client, if a rate is set.
        encode_cache: of block vectors, unless its size is 0 or the encoder is recurrent.
        exports: the limit on exports that wait for their first part.
        exporter: the one thread that reads exports, so that they delay no search.
        readers: the threads that tokenise, search and read the store.
        writer: the one thread that changes store and index, so that the index sees the changes
            in the order of the store.
        metrics: where everything is counted.
        recall_monitor: the thread that measures recall and adapts nprobe.
        maintenance: the thread that keeps the index accurate and compact.
    """

    settings: Settings
    checkpoint: Checkpoint
    tokenizer: BlockTokenizer
    encoder: OnnxEncoder
    data: DataDirectory
    calibrator: ScoreCalibrator
    fusion: LinearFusion
    scheduler: EncodeScheduler
    reranking: RerankPool | None
    admission: Admission
    jobs: Jobs
    redis: RedisClient | None
    rate_limiter: RateLimiter | None
    encode_cache: EncodeCache | None
    exports: Admission
    exporter: ThreadPoolExecutor
    readers: ThreadPoolExecutor
    writer: ThreadPoolExecutor
    metrics: Metrics
    recall_monitor: RecallMonitor
    maintenance: Maintenance


def unready_because(engine: Engine) -> str | None:
    """Return what keeps the engine from answering; None if nothing does."""
    if not engine.scheduler.alive:
        return "an encoder thread is not running"
    if engine.admission.full_seconds >= STUCK_SECONDS:
        return f"no active request has ended for {STUCK_SECONDS:.0f} s, and no more are accepted"
    return engine.data.damage


def is_ready(engine: Engine) -> bool:
    """Return whether the engine is open, every encoder thread runs and the store is sound."""
    return unready_because(engine) is None


def degraded_parts(engine: Engine) -> list[str]:
    """Return what is not well, although requests are answered.

    Redis is down, the lexical index is being made, all places of active requests are taken, the
    disk is full or failed, or documents were found to be damaged.
    """
    parts = {
        "redis": engine.redis is not None and not engine.redis.available,
        "lexical": engine.data.store.lexical.making,
        "active_requests": engine.admission.full_seconds > 0,
        "storage": _storage_fails(engine),
        "damaged_documents": len(engine.data.store.damage) > 0,
    }
    return [name for name, fails in parts.items() if fails]


def _storage_fails(engine: Engine) -> bool:
    failures = (engine.data.store.failure, engine.jobs.failure)
    return any(failures) or is_full(engine.data.store.path)


def record_index(engine: Engine) -> None:
    """Set the metrics that describe the index."""
    record_index_metrics(engine.data.index, engine.metrics)


def installed_version() -> str:
    """Return the version of the installed package, or "unknown" in a bare source tree."""
    try:
        return version("longmatch")
    except PackageNotFoundError:
        return "unknown"

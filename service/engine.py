"""What the service works with; `service.startup` opens and closes it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.directory.data_directory import DataDirectory
from index.search.fusion import LinearFusion
from service.background.maintenance import Maintenance, record_index_metrics
from service.background.recall_monitor import RecallMonitor
from service.jobs.runner import Jobs
from service.limits.admission import Admission
from service.limits.rate_limit import RateLimiter
from service.limits.redis_client import RedisClient
from service.matching.calibration import ScoreCalibrator
from service.metrics import Metrics
from service.settings import Settings
from service.workers.block_cache import BlockMemory
from service.workers.rerank_pool import RerankPool
from service.workers.scheduler import EncodeScheduler


@dataclass(frozen=True, slots=True)
class Engine:
    """What `open_engine` opened; behaviour is in the functions that take it.

    Attributes:
        settings: what it was opened with.
        checkpoint: which encoder.
        tokenizer: text -> sentence blocks.
        encoder: sentence blocks -> vectors.
        data: documents, vectors, index.
        judge: what a score is worth.
        fusion: how the scores of vectors and words are joined.
        scheduler: the queue in front of the encoder.
        reranking: the reranker with its threads, if there is one.
        admission: the bound on requests in the house.
        jobs: uploads, indexed in the background, and kept answers.
        redis: shared with other servers, if one was given.
        rate_limiter: counts the tokens of each client, if a rate was given.
        block_cache: remembers block vectors, if it may take any room.
        readers: the threads that tokenise, search and read the store.
        writer: the one thread that changes store and index, so that the index meets the changes
            in the order of the store.
        metrics: where everything is counted.
        recall_monitor: the thread that measures recall and adapts nprobe.
        maintenance: the thread that keeps the index good.
    """

    settings: Settings
    checkpoint: Checkpoint
    tokenizer: BlockTokenizer
    encoder: OnnxEncoder
    data: DataDirectory
    judge: ScoreCalibrator
    fusion: LinearFusion
    scheduler: EncodeScheduler
    reranking: RerankPool | None
    admission: Admission
    jobs: Jobs
    redis: RedisClient | None
    rate_limiter: RateLimiter | None
    block_cache: BlockMemory | None
    readers: ThreadPoolExecutor
    writer: ThreadPoolExecutor
    metrics: Metrics
    recall_monitor: RecallMonitor
    maintenance: Maintenance


def is_ready(engine: Engine) -> bool:
    """Say whether the engine can work: it is open and every encoder thread runs."""
    return engine.scheduler.alive


def degraded_parts(engine: Engine) -> list[str]:
    """Name the parts that do not work, and without which requests are answered all the same."""
    unreachable = engine.redis is not None and not engine.redis.available
    return ["redis"] if unreachable else []


def record_index(engine: Engine) -> None:
    """Set the metrics that describe the index."""
    record_index_metrics(engine.data.index, engine.metrics)


def installed_version() -> str:
    """Return the version of the installed package, or "unknown" in a bare source tree."""
    try:
        return version("longmatch")
    except PackageNotFoundError:
        return "unknown"

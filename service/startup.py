"""The composition root: opens everything that the service works with, once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from encoder.alignment.checkpoint_space import open_space
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.selection.block_selection import open_document_tokenizer
from index.adapt import read_corpus_adapter
from index.directory.data_directory import open_data_directory, with_share_of
from index.search.calibrator import open_calibrator
from index.search.fusion import read_fusion
from service.background.maintenance import Maintenance
from service.background.recall_monitor import RecallMonitor
from service.bulk_upload import run_job
from service.engine import Engine, installed_version, record_index
from service.errors import SettingsError
from service.jobs.runner import open_jobs
from service.limits.admission import Admission
from service.limits.rate_limit import LocalRateLimiter, RateLimiter, RedisRateLimiter
from service.limits.redis_client import RedisClient
from service.metrics import Metrics, create_metrics
from service.settings import Settings
from service.threads import lower_priority
from service.workers.block_cache import LruBlockCache
from service.workers.encode_cache import EncodeCache, probe_vector_space
from service.workers.redis_block_cache import RedisBlockCache
from service.workers.rerank_pool import open_rerank_pool
from service.workers.scheduler import EncodeScheduler

READER_THREADS = 4
_EXPORTS_SHARE = 8  # exports that begin may take an eighth of the places of active requests


def open_engine(settings: Settings) -> Engine:
    """Load and verify the checkpoint, open the data, start the workers and warm up.

    Jobs that an earlier process left unfinished continue.

    Raises:
        SettingsError: the queue could not hold the longest document, or the Redis URL is invalid.
        EncoderError: the checkpoint, the execution provider or the golden batch fails.
        IndexingError: the data directory is in use, damaged or of another checkpoint.
    """
    checkpoint = with_share_of(
        settings.data,
        load_checkpoint(settings.checkpoint or DEFAULT_CHECKPOINT),
        settings.reading_share,
    )
    _check_queue(settings, checkpoint)
    encoder = _warm_encoder(settings, checkpoint)
    metrics = create_metrics()
    with ExitStack() as opened:
        data = open_data_directory(
            settings.data,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            find_families=settings.find_families,
            alignment=open_space(checkpoint),
            index_precision=settings.index_precision,
            in_background=True,
        )
        opened.callback(data.close)
        redis = _open_redis(settings, metrics, opened)
        scheduler, cache = _open_scheduler(settings, encoder, redis, metrics, opened)
        reranking = open_rerank_pool(settings, metrics)
        jobs = open_jobs(settings, metrics)
        opened.callback(jobs.close)
        engine = Engine(
            settings=settings,
            checkpoint=checkpoint,
            tokenizer=open_document_tokenizer(checkpoint),
            encoder=encoder,
            data=data,
            calibrator=open_calibrator(checkpoint, data.path, encoder.adapter),
            fusion=read_fusion(checkpoint),
            scheduler=scheduler,
            reranking=reranking,
            admission=Admission(settings.max_active_requests),
            jobs=jobs,
            redis=redis,
            rate_limiter=_create_rate_limiter(settings.rate_limit_tokens_per_minute, redis),
            encode_cache=cache,
            exports=Admission(max(1, settings.max_active_requests // _EXPORTS_SHARE), "exports"),
            exporter=ThreadPoolExecutor(1, "exporter", lower_priority),
            readers=ThreadPoolExecutor(READER_THREADS, "reader", lower_priority),
            writer=ThreadPoolExecutor(1, "writer"),
            metrics=metrics,
            recall_monitor=RecallMonitor(data.index, metrics, settings),
            maintenance=Maintenance(data, metrics, settings),
        )
        _start(engine)
        opened.pop_all()
    return engine


def close_engine(engine: Engine) -> None:
    """Stop the workers, let writes finish and close the data; waiting callers get an error."""
    engine.maintenance.stop()  # a running training gives up while the rest closes
    engine.jobs.stop()
    engine.scheduler.close()
    if engine.reranking is not None:
        engine.reranking.close()
    engine.jobs.close()
    if engine.encode_cache is not None:
        engine.encode_cache.close()
    if engine.redis is not None:
        engine.redis.close()
    engine.exporter.shutdown(cancel_futures=True)
    engine.readers.shutdown()
    engine.writer.shutdown()
    engine.recall_monitor.close()
    engine.maintenance.close()
    engine.data.close()


def _start(engine: Engine) -> None:
    encoder = engine.encoder
    engine.metrics.build_info.labels(
        installed_version(), engine.checkpoint.name, encoder.precision, encoder.provider
    ).set(1)
    record_index(engine)
    engine.recall_monitor.start()
    engine.maintenance.start()
    engine.jobs.start(partial(run_job, engine))


def _warm_encoder(settings: Settings, checkpoint: Checkpoint) -> OnnxEncoder:
    encoder = OnnxEncoder(
        checkpoint,
        precision=settings.precision,
        providers=settings.providers or None,
        threads=settings.threads,
        adapter=read_corpus_adapter(settings.data, checkpoint),
    )
    encoder.warm_up()
    return encoder


def _check_queue(settings: Settings, checkpoint: Checkpoint) -> None:
    longest = checkpoint.max_blocks * checkpoint.block_length
    if settings.max_queue_tokens < longest:
        raise SettingsError(
            f"max_queue_tokens is {settings.max_queue_tokens}, but checkpoint {checkpoint.name} "
            f"reads documents of up to {longest} tokens: the queue must hold one of them"
        )


def _open_redis(settings: Settings, metrics: Metrics, opened: ExitStack) -> RedisClient | None:
    """Connect to Redis if a URL is set; while Redis is down, it is probed in the background."""
    if settings.redis_url is None:
        metrics.redis_up.set(1)
        return None
    redis = RedisClient(settings.redis_url, metrics)
    opened.callback(redis.close)
    return redis


def _open_scheduler(
    settings: Settings,
    encoder: OnnxEncoder,
    redis: RedisClient | None,
    metrics: Metrics,
    opened: ExitStack,
) -> tuple[EncodeScheduler, EncodeCache | None]:
    """Start the encoder threads, with a cache in front of them if there can be one."""
    probe = probe_vector_space(encoder)
    cache = _open_cache(settings, encoder, redis, metrics, probe.space)
    if cache is not None:
        opened.callback(cache.close)
    scheduler = EncodeScheduler(
        encoder,
        max_queue_tokens=settings.max_queue_tokens,
        max_queue_seconds=settings.max_queue_seconds,
        metrics=metrics,
        cache=cache,
    )
    opened.callback(scheduler.close)
    scheduler.set_initial_rate(probe.tokens_per_second)
    return scheduler, cache


def _open_cache(
    settings: Settings,
    encoder: OnnxEncoder,
    redis: RedisClient | None,
    metrics: Metrics,
    space: bytes,
) -> EncodeCache | None:
    """Open the cache of block vectors; None if it has no room, or the encoder is recurrent.

    The vector of a block then depends on its document, and cannot be found by its tokens.
    """
    width = encoder.checkpoint.block_dimension
    if encoder.recurrent:
        return None
    if redis is not None:
        return EncodeCache(RedisBlockCache(redis, width), space, metrics)
    if settings.block_cache_bytes:
        return EncodeCache(LruBlockCache(settings.block_cache_bytes, width), space, metrics)
    return None


def _create_rate_limiter(
    tokens_per_minute: int | None, redis: RedisClient | None
) -> RateLimiter | None:
    if tokens_per_minute is None:
        return None
    if redis is None:
        return LocalRateLimiter(tokens_per_minute)
    return RedisRateLimiter(redis, tokens_per_minute)

"""The composition root: opens everything that the service works with, once."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from encoder.encoder import Encoder, WarmRun
from encoder.onnx_encoder import usable_cores
from encoder.opening import find_encoder, open_encoder
from index.directory.data_directory import remembered_encoder
from service.collections.logic import close_collections, open_collections, stop_collections
from service.engine import Collections, Engine, installed_version
from service.errors import SettingsError
from service.limits import Admission, RateLimiter
from service.match.rerank import open_rerank_pool
from service.metrics import Metrics
from service.redis_client import RedisClient
from service.searchers import SearchProcesses
from service.settings import Settings
from service.text.logic import SentFiles
from service.threads import lower_priority
from service.workers.scheduler import EncodeCache, EncodeScheduler

READER_THREADS = 4
MAX_SEARCH_THREADS = 4
BODY_BYTES = 128 * 2**20  # in memory; eight bodies of the default limit, and two of any
_EXPORTS_SHARE = 8  # exports that begin may take an eighth of the places of active requests


def open_engine(settings: Settings) -> Engine:
    """Load and verify the checkpoint, start the workers, warm up and open the data.

    Jobs that an earlier process left unfinished continue. `opened` of the engine closes all of it:
    it stops the workers and lets writes finish; waiting callers get an error.
    """
    checkpoint = find_encoder(settings.encoder or remembered_encoder(settings.data))
    longest = checkpoint.max_blocks * checkpoint.block_length
    if settings.max_queue_tokens < longest:
        raise SettingsError(
            f"max_queue_tokens is {settings.max_queue_tokens}, but checkpoint {checkpoint.name} "
            f"reads documents of up to {longest} tokens: the queue must hold one of them"
        )
    encoder = open_encoder(
        checkpoint,
        precision=settings.precision,
        providers=settings.providers or None,
        threads=settings.threads,
    )
    run = encoder.warm_up()
    metrics, rate = Metrics(), settings.rate_limit_tokens_per_minute
    with ExitStack() as failing:
        # It closes what was opened last first: what works ends before what it works with.
        opened = failing.enter_context(ExitStack())
        collections = Collections()
        opened.callback(close_collections, collections)
        processes = SearchProcesses(settings, metrics)
        opened.callback(processes.close)
        searchers = opened.enter_context(
            ThreadPoolExecutor(
                settings.search_processes or search_threads(usable_cores()),
                "searcher",
                lower_priority,
            )
        )
        readers = opened.enter_context(ThreadPoolExecutor(READER_THREADS, "reader", lower_priority))
        exporter = ThreadPoolExecutor(1, "exporter", lower_priority)
        opened.callback(exporter.shutdown, cancel_futures=True)
        files = SentFiles()
        opened.callback(files.close)
        redis = None if settings.redis_url is None else RedisClient(settings.redis_url, metrics)
        if redis is None:
            metrics.redis_up.set(1)
        else:
            opened.callback(redis.close)
        reranking = open_rerank_pool(settings, metrics)
        if reranking is not None:
            opened.callback(reranking.close)
        engine = Engine(
            settings=settings,
            encoder=encoder,
            scheduler=_open_scheduler(settings, encoder, run, metrics, opened),
            reranking=reranking,
            admission=Admission(settings.max_active_requests),
            bodies=Admission(max(BODY_BYTES, 2 * settings.max_body_bytes), "body_bytes"),
            redis=redis,
            rate_limiter=None if rate is None else RateLimiter(rate, redis),
            exports=Admission(max(1, settings.max_active_requests // _EXPORTS_SHARE), "exports"),
            files=files,
            exporter=exporter,
            readers=readers,
            searchers=searchers,
            search_processes=processes,
            # Of normal priority, which the threads of a new collection inherit.
            changer=ThreadPoolExecutor(1, "collections"),
            metrics=metrics,
            collections=collections,
            opened=opened,
        )
        opened.callback(stop_collections, engine)
        open_collections(engine)
        processes.start()
        metrics.build_info.labels(
            installed_version(), checkpoint.name, encoder.precision, encoder.provider
        ).set(1)
        failing.pop_all()
    return engine


def search_threads(cores: int) -> int:
    """Return how many threads search: half as many as there are cores, up to `MAX_SEARCH_THREADS`.

    The event loop and the clients need the others. Most of a search holds the interpreter lock for
    microseconds at a time: threads that wait for it at the same time cost more CPU time than they
    save (measured: benchmarks/server/search.py, at 8 clients).
    """
    return max(1, min(MAX_SEARCH_THREADS, cores // 2))


def _open_scheduler(
    settings: Settings, encoder: Encoder, run: WarmRun, metrics: Metrics, opened: ExitStack
) -> EncodeScheduler:
    """Start the encoder threads, with a cache in front of them if there can be one.

    The vector of a block of a recurrent encoder depends on its document, and cannot be found by its
    tokens.
    """
    cache = None
    if settings.block_cache_bytes and not encoder.recurrent:
        width = encoder.checkpoint.block_dimension
        cache = EncodeCache(settings.block_cache_bytes, width, metrics)
        opened.callback(cache.close)
    scheduler = EncodeScheduler(
        encoder,
        max_queue_tokens=settings.max_queue_tokens,
        max_queue_seconds=settings.max_queue_seconds,
        metrics=metrics,
        cache=cache,
    )
    opened.callback(scheduler.close)
    scheduler.measure(_measure_rate(encoder, run), 1.0)  # until work is measured
    return scheduler


def _measure_rate(encoder: Encoder, run: WarmRun) -> float:
    """Return the tokens a second of one thread; where an encoder packs, of a packed run."""
    if not encoder.batch_tokens:
        return run.tokens_per_second
    started = time.perf_counter()
    encoder.encode_blocks(run.blocks)
    return sum(map(len, run.blocks)) / (time.perf_counter() - started)

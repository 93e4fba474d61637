"""The one composition root: everything that the service works with, opened once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.corpus_adapter import read_corpus_adapter
from index.data_directory import DataDirectory, open_data_directory
from index.fusion import FusionRule, read_fusion
from service.admission import Admission
from service.calibration import Judge, open_judge
from service.errors import SettingsError
from service.golden_run import golden_run
from service.jobs.jobs import Jobs, open_jobs
from service.maintenance import Maintenance, record_index_metrics
from service.metrics import Metrics, create_metrics
from service.recall_watch import RecallWatch
from service.reranking import RerankPool, open_rerank_pool
from service.scheduler import EncodeScheduler
from service.settings import Settings
from service.shared import Shared, open_shared
from service.threads import give_way

READER_THREADS = 4


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
        shared: block vectors and rate counters, in Redis where there is one.
        readers: the threads that tokenise, search and read the store.
        writer: the one thread that changes store and index, so that the index meets the changes
            in the order of the store.
        metrics: where everything is counted.
        recall_watch: the thread that measures recall and adapts nprobe.
        maintenance: the thread that keeps the index good.
    """

    settings: Settings
    checkpoint: Checkpoint
    tokenizer: BlockTokenizer
    encoder: OnnxEncoder
    data: DataDirectory
    judge: Judge
    fusion: FusionRule
    scheduler: EncodeScheduler
    reranking: RerankPool | None
    admission: Admission
    jobs: Jobs
    shared: Shared
    readers: ThreadPoolExecutor
    writer: ThreadPoolExecutor
    metrics: Metrics
    recall_watch: RecallWatch
    maintenance: Maintenance


def open_engine(settings: Settings) -> Engine:
    """Load and verify the checkpoint, open the data, start the workers and warm up.

    Jobs that an earlier process left go on.

    Raises:
        SettingsError: the queue could not hold the longest document.
        EncoderError: the checkpoint, the execution provider or the golden batch fails.
        IndexingError: the data directory is in use, damaged or of another checkpoint.
    """
    checkpoint = load_checkpoint(settings.checkpoint or DEFAULT_CHECKPOINT)
    _check_queue(settings, checkpoint)
    from service.bulk import run_job  # it needs this module

    encoder = _warm_encoder(settings, checkpoint)
    metrics = create_metrics()
    with ExitStack() as opened:
        data = open_data_directory(
            settings.data,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            find_families=settings.find_families,
        )
        opened.callback(data.close)
        golden = golden_run(encoder)
        shared = open_shared(settings, encoder, golden.space, metrics)
        opened.callback(shared.close)
        scheduler = EncodeScheduler(
            encoder,
            max_queue_tokens=settings.max_queue_tokens,
            max_queue_seconds=settings.max_queue_seconds,
            metrics=metrics,
            memory=shared.memory,
        )
        scheduler.expect(golden.tokens_per_second)
        opened.callback(scheduler.close)
        reranking = open_rerank_pool(settings, metrics)
        jobs = open_jobs(settings, metrics)
        opened.callback(jobs.close)
        engine = Engine(
            settings=settings,
            checkpoint=checkpoint,
            tokenizer=BlockTokenizer(checkpoint),
            encoder=encoder,
            data=data,
            judge=open_judge(checkpoint, data.path, encoder.adapter),
            fusion=read_fusion(checkpoint),
            scheduler=scheduler,
            reranking=reranking,
            admission=Admission(settings.max_active_requests),
            jobs=jobs,
            shared=shared,
            readers=ThreadPoolExecutor(READER_THREADS, "reader", give_way),
            writer=ThreadPoolExecutor(1, "writer"),
            metrics=metrics,
            recall_watch=RecallWatch(data.index, metrics, settings),
            maintenance=Maintenance(data, metrics, settings),
        )
        metrics.build_info.labels(
            installed_version(), checkpoint.name, encoder.precision, encoder.provider
        ).set(1)
        record_index(engine)
        engine.recall_watch.start()
        engine.maintenance.start()
        jobs.start(partial(run_job, engine))
        opened.pop_all()
    return engine


def close_engine(engine: Engine) -> None:
    """Stop the workers, let writes end, and close the data; who still waits gets an error."""
    engine.maintenance.stop()  # a training that runs gives up while the rest closes
    engine.jobs.stop()
    engine.scheduler.close()
    if engine.reranking is not None:
        engine.reranking.close()
    engine.jobs.close()
    engine.shared.close()
    engine.readers.shutdown()
    engine.writer.shutdown()
    engine.recall_watch.close()
    engine.maintenance.close()
    engine.data.close()


def is_ready(engine: Engine) -> bool:
    """Say whether the engine can work: it is open and every encoder thread runs."""
    return engine.scheduler.alive


def degraded_parts(engine: Engine) -> list[str]:
    """Name the parts that do not work, and without which requests are answered all the same."""
    return engine.shared.degraded or (["redis"] if engine.jobs.degraded else [])


def record_index(engine: Engine) -> None:
    """Set the metrics that describe the index."""
    record_index_metrics(engine.data.index, engine.metrics)


def installed_version() -> str:
    """Return the version of the installed package, or "unknown" in a bare source tree."""
    try:
        return version("longmatch")
    except PackageNotFoundError:
        return "unknown"


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

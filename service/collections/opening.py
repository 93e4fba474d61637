"""Opens and closes a collection: a data directory, and the threads that work for it alone."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from encoder.adapter import open_adaptation, vector_space
from encoder.alignment.checkpoint_space import open_space
from encoder.checkpoint import Checkpoint
from encoder.selection.block_selection import open_document_tokenizer
from encoder.tokenizer import BlockTokenizer
from index.adapt import read_corpus_adapter
from index.directory.data_directory import open_data_directory, with_share_of
from index.search.calibrator import open_calibrator
from index.search.corpus_fusion import fusion_of
from service.background.maintenance import Maintenance, record_index_metrics
from service.background.recall_monitor import RecallMonitor
from service.bulk_upload import run_job
from service.engine import Collection, Engine
from service.feedback.store import open_feedback
from service.jobs.runner import open_jobs
from service.matching.feedback import forget_unstored
from service.matching.standing import scan_new_documents
from service.standing.runner import open_standing


def open_collection(engine: Engine, name: str, path: Path) -> Collection:
    """Open a data directory and start the threads of its collection.

    Jobs that an earlier process left unfinished continue.

    Args:
        engine: whose encoder and settings are used.
        name: of the collection.
        path: of its data directory, which is created if it is missing.

    Raises:
        EncoderError: its adapter or calibration is damaged or of another checkpoint.
        IndexingError: it is in use, damaged or of another checkpoint.
    """
    settings = engine.settings
    database = settings.database
    checkpoint = with_share_of(path, engine.checkpoint, settings.reading_share, database)
    fitted = read_corpus_adapter(path, checkpoint)
    space = vector_space(checkpoint, fitted)
    with ExitStack() as opened:
        data = open_data_directory(
            path,
            fingerprint=space.fingerprint,
            dimension=space.dimension,
            find_families=settings.find_families,
            alignment=open_space(checkpoint),
            index_precision=settings.index_precision,
            milvus=settings.milvus,
            database=database,
            in_background=True,
        )
        opened.callback(data.close)
        metrics = engine.metrics.of(name)
        feedback = open_feedback(path, metrics)
        opened.callback(feedback.close)
        jobs = open_jobs(path, settings, metrics)
        opened.callback(jobs.close)
        standing = open_standing(path, settings, metrics)
        opened.callback(standing.close)
        collection = Collection(
            name=name,
            engine=engine,
            checkpoint=checkpoint,
            tokenizer=_tokenizer(engine, checkpoint),
            adapter=None if fitted is None else open_adaptation(checkpoint, fitted),
            space=space,
            data=data,
            fusion=fusion_of(path, checkpoint, fitted),
            calibrator=open_calibrator(checkpoint, path, fitted),
            feedback=feedback,
            jobs=jobs,
            standing=standing,
            writer=ThreadPoolExecutor(1, "writer"),
            metrics=metrics,
            recall_monitor=RecallMonitor(data.index, metrics, settings.target_recall),
            maintenance=Maintenance(data, metrics, settings),
        )
        record_index_metrics(data.index, metrics)
        forget_unstored(collection)
        opened.callback(collection.recall_monitor.close)
        collection.recall_monitor.start()
        opened.callback(collection.maintenance.close)
        collection.maintenance.start()
        standing.start(
            partial(scan_new_documents, collection),
            space.fingerprint,
            data.store.log.last_vector_id,
        )
        jobs.start(partial(run_job, collection))
        if engine.search_processes is not None:
            engine.search_processes.add(collection.served)
        opened.pop_all()
    return collection


def stop_collection(collection: Collection) -> None:
    """Ask the background work of a collection to end, without waiting for it."""
    collection.maintenance.stop()  # a running training gives up while the rest closes
    collection.jobs.stop()
    collection.standing.stop()


def close_collection(collection: Collection) -> None:
    """Let its writes finish and close its data; what still reads it gets an error."""
    stop_collection(collection)
    collection.jobs.close()
    collection.standing.close()
    collection.writer.shutdown()
    collection.recall_monitor.close()
    collection.maintenance.close()
    collection.feedback.close()
    if collection.engine.search_processes is not None:
        collection.engine.search_processes.forget(collection.number)
    collection.data.close()


def _tokenizer(engine: Engine, checkpoint: Checkpoint) -> BlockTokenizer:
    """Return the tokenizer of the engine, or one that selects blocks."""
    if checkpoint.reading_share == engine.checkpoint.reading_share:
        return engine.tokenizer
    return open_document_tokenizer(checkpoint)

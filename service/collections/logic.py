"""The collections of a service: opened at its start, created and removed while it runs, closed."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from encoder.alignment.space import open_space
from encoder.block_selection import open_document_tokenizer
from encoder.checkpoint import WHOLE, Checkpoint, vector_space, with_reading_share
from encoder.errors import EncoderError
from encoder.tokenizer import BlockTokenizer
from index.directory import collections as folders
from index.directory.data_directory import open_data_directory, remember_encoder, with_share_of
from index.errors import DataDirectoryInUseError, IndexingError, StoreError
from index.search.calibrate import LiveScoring
from service.engine import DEFAULT, Collection, Collections, Engine, UnopenedCollection
from service.errors import FieldError, InvalidInputError, SettingsError, TooManyCollectionsError
from service.feedback.store import FeedbackStore
from service.maintenance import Maintenance, RecallMonitor
from service.map.logic import LiveMap
from service.standing.logic import StandingQueries
from service.state import open_state
from service.uploads.logic import Jobs, run_job

_LOG = logging.getLogger(__name__)


def open_collection(engine: Engine, name: str, path: Path) -> Collection:
    """Open a data directory, or make it, and start the threads of its collection.

    Jobs that an earlier process left unfinished continue.
    """
    settings = engine.settings
    checkpoint = with_share_of(
        path, engine.encoder.checkpoint, settings.reading_share, settings.database
    )
    space = vector_space(checkpoint)
    with ExitStack() as failing:
        # It closes what was opened last first: what works ends before what it works with.
        opened = failing.enter_context(ExitStack())
        data = open_data_directory(
            path,
            fingerprint=space.fingerprint,
            dimension=space.dimension,
            find_families=settings.find_families,
            alignment=open_space(checkpoint),
            index_precision=settings.index_precision,
            in_background=True,
            engine=settings.engine,
            database=settings.database,
        )
        opened.callback(data.close)
        remember_encoder(path, checkpoint)
        metrics = engine.metrics.of(name)
        state = open_state(path, settings.database)
        opened.callback(state.close)
        scoring = LiveScoring(checkpoint, data)
        maintenance = Maintenance(data, scoring, metrics, settings)
        corpus_map = LiveMap(data.store)
        standing = StandingQueries(state, settings, metrics)
        writer = opened.enter_context(ThreadPoolExecutor(1, "writer"))
        jobs = Jobs(state, path, settings, metrics)
        opened.callback(jobs.threads.shutdown)
        workers = [part.worker for part in (maintenance, corpus_map, standing.webhooks)]
        workers += [standing.worker, jobs.worker]  # which use what is before them
        recall_monitor = None
        if not data.store.searched_elsewhere:
            recall_monitor = RecallMonitor(data.index, metrics, settings.target_recall)
            recall_monitor.worker.start()
            workers.append(recall_monitor.worker)
        for worker in workers:
            opened.callback(worker.close)
        collection = Collection(
            name=name,
            engine=engine,
            checkpoint=checkpoint,
            tokenizer=_tokenizer(engine, checkpoint),
            space=space,
            data=data,
            scoring=scoring,
            state=state,
            feedback=FeedbackStore(state, settings.max_feedback),
            jobs=jobs,
            standing=standing,
            writer=writer,
            metrics=metrics,
            recall_monitor=recall_monitor,
            maintenance=maintenance,
            map=corpus_map,
            workers=workers,
            opened=opened,
        )
        opened.callback(stop_collection, collection)
        _forget_unstored(collection)
        maintenance.start()
        standing.start(collection)
        jobs.start(partial(run_job, collection))
        engine.search_processes.add(collection)
        opened.callback(engine.search_processes.forget, collection.number)
        failing.pop_all()
    return collection


def _forget_unstored(collection: Collection) -> None:
    """Remove the verdicts on documents that are not stored, which a backup may have.

    It is copied while the service works: first the feedback, then the documents.

    What fails is logged: it must not keep documents from being served.
    """
    try:
        named = collection.feedback.documents()
        stored = collection.data.store.content_hashes(named)
        lost = [name for name in named if name not in stored]
        if lost:
            collection.feedback.forget(lost)
    except StoreError as error:
        _LOG.warning("feedback on documents that are gone was not removed: %s", error)


def stop_collection(collection: Collection) -> None:
    """Ask the background work of a collection to end, without waiting for it."""
    for worker in collection.workers:  # a running training gives up while the rest closes
        worker.stop()


def _tokenizer(engine: Engine, checkpoint: Checkpoint) -> BlockTokenizer:
    """Return the tokenizer of the engine, or one that selects blocks."""
    if checkpoint.reading_share == engine.encoder.checkpoint.reading_share:
        return engine.encoder.read
    return open_document_tokenizer(checkpoint)


def open_collections(engine: Engine) -> None:
    """Open the default collection, and those below its data directory.

    One that cannot be opened does not keep the others from being served; SettingsError if there are
    more than the settings allow.
    """
    settings = engine.settings
    failure = _open(engine, DEFAULT)
    if isinstance(failure, DataDirectoryInUseError):
        raise failure
    try:
        folders.delete_remains(settings.data)
    except StoreError as error:  # they only take room
        _LOG.warning("%s", error)
    names = _stored_names(engine)
    if len(names) > settings.max_collections:
        raise SettingsError(
            f"max_collections is {settings.max_collections}, and {settings.data} has {len(names)}"
        )
    for name in names:
        _open(engine, name)
    if failure is not None and not engine.collections.opened():
        raise failure


def stop_collections(engine: Engine) -> None:
    """Ask the background work of all to end; none is created or removed any more."""
    engine.changer.shutdown(cancel_futures=True)
    for collection in engine.collections.opened():
        stop_collection(collection)


def close_collections(collections: Collections) -> None:
    """Let the writes of all finish and close their data; what still reads them gets an error."""
    for collection in collections.opened():
        collection.opened.close()


def create_collection(engine: Engine, name: str) -> bool:
    """Create a collection, durably, unless it exists; open it if it is not open.

    Called in the thread `engine.changer`. TooManyCollectionsError if there are as many as the
    settings allow.

    Returns:
        Whether it is new.
    """
    collections, settings = engine.collections, engine.settings
    members = {member.name: member for member in collections.members()}
    if isinstance(members.get(name), Collection):
        return False
    if name not in members and len(members.keys() - {DEFAULT}) >= settings.max_collections:
        raise TooManyCollectionsError(settings.max_collections)
    is_new = name != DEFAULT and name not in _stored_names(engine)
    if is_new and settings.database is None:
        folders.make_collection(settings.data, name, lambda folder: _fill(engine, folder))
    _open(engine, name)
    collections.find(name)  # raises if it could not be opened
    return is_new


def remove_collection(engine: Engine, name: str) -> None:
    """Remove a collection and all that it holds; its jobs are cancelled.

    Called in the thread `engine.changer`. Requests that use it may end first, for as long as the
    drain time of the settings. InvalidInputError for the default collection.
    """
    if name == DEFAULT:
        detail = "the default collection cannot be removed"
        raise InvalidInputError([FieldError("", detail, parameter="collection")])
    member = engine.collections.withdraw(name, engine.settings.drain_seconds)
    try:
        if isinstance(member, Collection):
            member.opened.close()
        if (database := engine.settings.database) is not None:
            from index.postgresql.connections import drop_collection  # an optional dependency

            drop_collection(database, name)
        folders.remove_collection(engine.settings.data, name)
    except Exception as error:
        if folders.collection_path(engine.settings.data, name).exists():
            _put_unopened(engine, name, error)
            raise
        _LOG.warning("files of the removed collection %s are left: %s", name, error)
    engine.metrics.forget(name)


def _open(engine: Engine, name: str) -> EncoderError | IndexingError | None:
    """Open a collection; return why it cannot be used."""
    path = folders.collection_path(engine.settings.data, name)
    try:
        if engine.settings.database is not None:  # which holds the store
            path.mkdir(parents=True, exist_ok=True)
        elif name != DEFAULT:
            folders.check_collection(path)
        engine.collections.put(open_collection(engine, name, path))
    except (EncoderError, IndexingError) as error:
        _put_unopened(engine, name, error)
        return error
    return None


def _stored_names(engine: Engine) -> list[str]:
    """Return the names of the collections besides the default one, whichever server made them."""
    if engine.settings.database is None:
        return folders.collection_names(engine.settings.data)
    from index.postgresql.connections import collections_in  # an optional dependency

    return [name for name in collections_in(engine.settings.database) if name != DEFAULT]


def _put_unopened(engine: Engine, name: str, error: BaseException) -> None:
    _LOG.error("the collection %s cannot be used: %s", name, error)
    engine.metrics.forget(name)
    engine.collections.put(UnopenedCollection(name, str(error) or type(error).__name__))


def _fill(engine: Engine, folder: Path) -> None:
    """Make an empty data directory, as `open_collection` would."""
    share = engine.settings.reading_share
    checkpoint = with_reading_share(engine.encoder.checkpoint, WHOLE if share is None else share)
    space = vector_space(checkpoint)
    open_data_directory(
        folder,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        alignment=open_space(checkpoint),
        index_precision=engine.settings.index_precision,
    ).close()

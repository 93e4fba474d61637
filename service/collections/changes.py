"""The collections of a service: opened at its start, created and removed while it runs."""

import logging
from pathlib import Path

from encoder.adapter import vector_space
from encoder.alignment.space import open_space
from encoder.checkpoint import WHOLE, with_reading_share
from encoder.errors import EncoderError
from index.directory.collections import (
    check_collection,
    collection_names,
    collection_path,
    delete_remains,
    make_collection,
)
from index.directory.collections import (
    remove_collection as remove_folder,
)
from index.directory.data_directory import open_data_directory
from index.errors import DataDirectoryInUseError, IndexingError, StoreError
from service.collections.opening import close_collection, open_collection, stop_collection
from service.engine import DEFAULT, Collection, Engine, UnopenedCollection
from service.errors import (
    FieldError,
    InvalidInputError,
    SettingsError,
    TooManyCollectionsError,
)

_LOG = logging.getLogger(__name__)


def open_collections(engine: Engine) -> None:
    """Open the default collection, and those below its data directory.

    One that cannot be opened does not keep the others from being served.

    Raises:
        DataDirectoryInUseError: another process has the data directory open.
        EncoderError, IndexingError: the default collection cannot be opened, and there is no other
            one that can.
        SettingsError: there are more than the settings allow.
    """
    settings = engine.settings
    failure: EncoderError | IndexingError | None = None
    try:
        engine.collections.put(open_collection(engine, DEFAULT, settings.data))
    except DataDirectoryInUseError:
        raise
    except (EncoderError, IndexingError) as error:
        failure = error
    try:
        delete_remains(settings.data)
    except StoreError as error:  # they only take room
        _LOG.warning("%s", error)
    names = collection_names(settings.data)
    if len(names) > settings.max_collections:
        raise SettingsError(
            f"max_collections is {settings.max_collections}, and {settings.data} has {len(names)}"
        )
    for name in names:
        _open(engine, name)
    if failure is not None:
        if not engine.collections.opened():
            raise failure
        _put_unopened(engine, DEFAULT, failure)


def stop_collections(engine: Engine) -> list[Collection]:
    """Ask the background work of all to end; none is created or removed any more.

    Returns:
        The open ones, which are still to be closed.
    """
    engine.changer.shutdown(cancel_futures=True)
    opened = engine.collections.opened()
    for one in opened:
        stop_collection(one)
    return opened


def close_collections(engine: Engine) -> None:
    """Let the writes of all collections finish and close their data."""
    for one in stop_collections(engine):
        close_collection(one)


def create_collection(engine: Engine, name: str) -> bool:
    """Create a collection, durably, unless it exists; open it if it is not open.

    Called in the thread `engine.changer`.

    Args:
        engine: that serves it.
        name: of the collection, which is valid.

    Returns:
        Whether it is new.

    Raises:
        NotReadyError: it exists and cannot be opened.
        StoreError: it could not be created.
        TooManyCollectionsError: there are as many as the settings allow.
    """
    collections, settings = engine.collections, engine.settings
    members = {one.name: one for one in collections.members()}
    if isinstance(members.get(name), Collection):
        return False
    if name not in members and len(members.keys() - {DEFAULT}) >= settings.max_collections:
        raise TooManyCollectionsError(settings.max_collections)
    is_new = not collection_path(settings.data, name).exists()
    if is_new:
        make_collection(settings.data, name, lambda folder: _fill(engine, folder))
    _open(engine, name)
    collections.find(name)  # raises if it could not be opened
    return is_new


def remove_collection(engine: Engine, name: str) -> None:
    """Remove a collection and all that it holds; its jobs are cancelled.

    Called in the thread `engine.changer`. Requests that use it may end first, for as long as the
    drain time of the settings.

    Raises:
        CollectionNotFoundError: there is none of this name.
        InvalidInputError: it is the default collection.
        StoreError: its folder could not be removed.
    """
    if name == DEFAULT:
        detail = "the default collection cannot be removed"
        raise InvalidInputError([FieldError("", detail, parameter="collection")])
    member = engine.collections.withdraw(name, engine.settings.drain_seconds)
    try:
        if isinstance(member, Collection):
            close_collection(member)
        remove_folder(engine.settings.data, name)
    except Exception as error:
        if collection_path(engine.settings.data, name).exists():
            _put_unopened(engine, name, error)
            raise
        _LOG.warning("files of the removed collection %s are left: %s", name, error)
    engine.metrics.forget(name)


def _open(engine: Engine, name: str) -> None:
    path = collection_path(engine.settings.data, name)
    try:
        if name != DEFAULT:
            check_collection(path)
        engine.collections.put(open_collection(engine, name, path))
    except (EncoderError, IndexingError) as error:
        _put_unopened(engine, name, error)


def _put_unopened(engine: Engine, name: str, error: BaseException) -> None:
    _LOG.error("the collection %s cannot be used: %s", name, error)
    engine.metrics.forget(name)
    engine.collections.put(UnopenedCollection(name, str(error) or type(error).__name__))


def _fill(engine: Engine, folder: Path) -> None:
    """Make an empty data directory, as `open_collection` would."""
    share = engine.settings.reading_share
    checkpoint = with_reading_share(engine.checkpoint, WHOLE if share is None else share)
    space = vector_space(checkpoint, None)
    open_data_directory(
        folder,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        alignment=open_space(checkpoint),
        index_precision=engine.settings.index_precision,
    ).close()

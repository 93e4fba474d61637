"""The named collections of a data directory, each a whole data directory in a folder.

collections/NAME/           a data directory, on which every command works by this path
collections/.NAME.new/      one that is being made; thrown away after a kill
collections/.NAME.removed/  one that was removed, until its files are deleted

A collection exists from the rename to its name until the rename away from it: a kill leaves it
whole, or it is gone. The data directory itself is the default collection, which always exists.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from encoder.atomic_files import replace_durably, sync
from index.directory.data_directory import STORE_FILE, swap_is_pending, sync_tree
from index.errors import StoreError
from index.store.schema import COLLECTIONS_DIRECTORY, DEFAULT_COLLECTION

NAME_PATTERN = "^[a-z0-9][a-z0-9_-]{0,62}$"  # a name is a folder, a part of a path, and a label


def is_collection_name(name: str) -> bool:
    """Return whether a collection may have this name."""
    return re.fullmatch(NAME_PATTERN, name) is not None


def collection_path(data: Path, name: str) -> Path:
    """Return the data directory of a collection, which may not exist.

    Args:
        data: the data directory of the server.
        name: of the collection, which is valid.
    """
    return data if name == DEFAULT_COLLECTION else data / COLLECTIONS_DIRECTORY / name


def collection_names(data: Path) -> list[str]:
    """Return the names of the collections besides the default one, in order.

    Raises:
        StoreError: the folder cannot be read.
    """
    folder = data / COLLECTIONS_DIRECTORY
    try:
        found = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read: {error}") from error
    return sorted(name for name in found if is_collection_name(name) and name != DEFAULT_COLLECTION)


def check_collection(path: Path) -> None:
    """Check that the folder of a collection has a store: without it, it would begin as empty.

    Raises:
        StoreError: it has none.
    """
    if not (path / STORE_FILE).is_file() and not swap_is_pending(path):
        raise StoreError(f"{path}: there is no data directory here")


def make_collection(data: Path, name: str, fill: Callable[[Path], None]) -> None:
    """Make a collection, durably, where there is none.

    Args:
        data: the data directory of the server.
        name: of the collection, not the default one.
        fill: makes the data directory in the folder that it is given, and closes it.

    Raises:
        StoreError: it could not be written; there is no such collection.
    """
    path = collection_path(data, name)
    unfinished = path.with_name(f".{name}.new")
    try:
        path.parent.mkdir(exist_ok=True)
        sync(data)
        _delete(unfinished)
        fill(unfinished)
        sync_tree(unfinished)
        replace_durably(unfinished, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be created: {error}") from error


def remove_collection(data: Path, name: str) -> None:
    """Remove a collection that no process has open; gone, durably, before its files are deleted.

    Args:
        data: the data directory of the server.
        name: of the collection, not the default one.

    Raises:
        StoreError: it could not be renamed, and is unchanged; or its files could not all be
            deleted, which `delete_remains` tries again.
    """
    path = collection_path(data, name)
    removed = path.with_name(f".{name}.removed")
    try:
        _delete(removed)
        if path.exists():
            replace_durably(path, removed)
            _delete(removed)
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed: {error}") from error


def delete_remains(data: Path) -> None:
    """Delete what a kill left of collections that were being made or removed.

    Raises:
        StoreError: something could not be deleted.
    """
    folder = data / COLLECTIONS_DIRECTORY
    try:
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name.startswith(".") and entry.suffix in (".new", ".removed"):
                _delete(entry)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be cleared: {error}") from error


def _delete(folder: Path) -> None:
    if folder.is_symlink():  # to where an operator put the files, such as another disk
        if folder.exists():
            shutil.rmtree(folder.resolve())
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)

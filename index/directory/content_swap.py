"""Putting a whole new content into a data directory: all of it is there afterwards, or none.

    .arriving/    the new content while it is written; it counts for nothing
    .decided/     the same, finished: from this rename on it counts, and the old is moved out
    .moving-in/   the old content is out, the new one is moved in
    .old/         the old content, until it is deleted

A data directory may be a mount point, which nothing can be renamed to: so its entries are moved
one by one, and whoever opens it for writing after a kill goes on where that one was.
"""

import os
import shutil
from pathlib import Path

from encoder.atomic_files import replace_durably, sync
from index.errors import StoreError

ARRIVING = ".arriving"
DECIDED = ".decided"
MOVING_IN = ".moving-in"
OLD = ".old"
WORKING = frozenset((ARRIVING, DECIDED, MOVING_IN, OLD))


def swap_in(path: Path, replaced: tuple[str, ...]) -> None:
    """Replace these entries of a data directory by all that is in its `.arriving`.

    The caller holds the lock of the directory. A kill leaves the old content or, at the next
    opening, the new one.

    Raises:
        StoreError: it could not be written.
    """
    try:
        sync_tree(path / ARRIVING)
        replace_durably(path / ARRIVING, path / DECIDED)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    finish_swap(path, replaced)


def finish_swap(path: Path, replaced: tuple[str, ...]) -> None:
    """Go on with a swap that was decided; does nothing where there is none.

    Raises:
        StoreError: it could not be written; a later call goes on.
    """
    try:
        if (path / DECIDED).exists():
            _move_out(path, replaced)
        if (path / MOVING_IN).exists():
            for entry in sorted((path / MOVING_IN).iterdir()):
                entry.replace(path / entry.name)
            sync(path)
            (path / MOVING_IN).rmdir()
        if (path / OLD).exists():
            shutil.rmtree(path / OLD)
    except OSError as error:
        raise StoreError(f"{path}: a change of its content is unfinished: {error}") from error


def swap_is_pending(path: Path) -> bool:
    """Say whether the entries of a data directory are old and new ones, half moved."""
    return (path / DECIDED).exists() or (path / MOVING_IN).exists()


def sync_tree(path: Path) -> None:
    """Return when a directory and all in it are on the disk.

    Raises:
        OSError: the disk did not take it.
    """
    for folder, _, names in os.walk(path):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))


def _move_out(path: Path, replaced: tuple[str, ...]) -> None:
    (path / OLD).mkdir(exist_ok=True)
    for name in replaced:
        if (path / name).exists():
            (path / name).replace(path / OLD / name)
    sync(path)
    replace_durably(path / DECIDED, path / MOVING_IN)

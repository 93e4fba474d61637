"""Replace the whole content of a data directory, all of it or nothing.

    .arriving/    the new content while it is written; ignored and thrown away after a kill
    .decided/     the new content, complete: from this rename on it counts; the old is moved out
    .moving-in/   the old content is out, the new one is moved in
    .old/         the old content, until it is deleted

A data directory may be a mount point, which cannot be replaced by a rename. So its entries are
moved one by one, and the next opening for writing resumes a swap that a kill interrupted.
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


def swap_in(path: Path, replaced: tuple[str, ...], new: str = ARRIVING) -> None:
    """Replace these entries of a data directory by the content of `new`, a folder in it.

    The caller holds the lock of the directory. After a kill the
    next opening finds the old content or the new one.

    Raises:
        StoreError: it could not be written.
    """
    try:
        sync_tree(path / new)
        replace_durably(path / new, path / DECIDED)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    finish_swap(path, replaced)


def finish_swap(path: Path, replaced: tuple[str, ...]) -> None:
    """Finish a swap that was decided; does nothing where there is none.

    Raises:
        StoreError: it could not be written; a later call resumes.
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
        raise StoreError(f"{path}: a swap of its content is unfinished: {error}") from error


def swap_is_pending(path: Path) -> bool:
    """Return whether a swap was decided and not finished."""
    return (path / DECIDED).exists() or (path / MOVING_IN).exists()


def sync_tree(path: Path) -> None:
    """Write a directory and everything in it through to the disk.

    Raises:
        OSError: something cannot be written.
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

"""Putting a finished file or directory in place, whole or not at all."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a directory, are on the disk.

    Raises:
        OSError: the disk did not take it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(finished: Path, path: Path) -> None:
    """Rename `finished`, in the same directory, to `path`: all of it is there afterwards, or none.

    Raises:
        OSError: the disk did not take it.
    """
    sync(finished)
    finished.replace(path)
    sync(path.parent)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file: all of it is there afterwards, or what was there before.

    Raises:
        OSError: the disk did not take it.
    """
    finished = path.with_name(path.name + ".partial")
    finished.write_bytes(content.encode() if isinstance(content, str) else content)
    replace_durably(finished, path)

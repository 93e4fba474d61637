"""Atomic and durable replacement of files and directories."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Flush the content of a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(finished: Path, path: Path) -> None:
    """Rename `finished`, in the same directory, to `path`, atomically and durably."""
    sync(finished)
    finished.replace(path)
    sync(path.parent)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: it has either the new content or the old."""
    finished = path.with_name(path.name + ".partial")
    finished.write_bytes(content.encode() if isinstance(content, str) else content)
    replace_durably(finished, path)

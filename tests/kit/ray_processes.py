"""The processes that Ray runs below a command."""

from collections.abc import Iterator
from pathlib import Path


def children(pid: int) -> Iterator[int]:
    """Yield the processes below a process, at any depth."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in path.read_text().split():
                yield int(child)
                yield from children(int(child))
        except OSError:
            continue  # it has ended


def encoders(pid: int, title: bytes = b"EncodingActor") -> list[int]:
    """Return the processes that Ray runs encoders in, of the cluster that a process started.

    The title of one that is at work ends with the name of a method.
    """
    found = []
    for child in children(pid):
        try:
            if title in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:
            continue
    return found

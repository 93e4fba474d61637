"""A closed data directory with a snapshot, and the checkpoint that it is of."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from index.directory.data_directory import DataDirectory, open_data_directory
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    opened = load_checkpoint(DEFAULT_CHECKPOINT)
    return replace(opened, name="ours", fingerprint=FINGERPRINT, dimension=DIMENSION)


@contextmanager
def opened(path: Path) -> Iterator[DataDirectory]:
    directory = open_data_directory(path, fingerprint=FINGERPRINT, dimension=DIMENSION)
    try:
        yield directory
    finally:
        directory.close()


def fill(directory: DataDirectory, entry: MakeEntry, names: range) -> None:
    texts = (f"word{number % 7} common text {number}" for number in names)
    entries = [entry(f"d{n}", text, n=n) for n, text in zip(names, texts, strict=True)]
    directory.index.apply(directory.store.put(entries))


@pytest.fixture
def data(tmp_path: Path, entry: MakeEntry) -> Path:
    """A directory whose snapshot is behind its store."""
    path = tmp_path / "data"
    with opened(path) as directory:
        fill(directory, entry, range(300))
        directory.index.publish()
        fill(directory, entry, range(300, 350))
        directory.index.apply(directory.store.delete([f"d{n}" for n in range(0, 350, 9)]))
    return path

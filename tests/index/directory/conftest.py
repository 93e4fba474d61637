"""A closed data directory with a snapshot, and the checkpoint that it is of."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from index.directory.data_directory import DataDirectory, open_data_directory
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry, make_entry


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


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose snapshot is behind its store; each test has a copy."""
    path = tmp_path_factory.mktemp("filled") / "data"
    with opened(path) as directory:
        fill(directory, make_entry, range(300))
        directory.index.publish()
        fill(directory, make_entry, range(300, 350))
        directory.index.apply(directory.store.delete([f"d{n}" for n in range(0, 350, 9)]))
    return path


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A directory whose snapshot is behind its store."""
    return Path(shutil.copytree(filled, tmp_path / "data"))

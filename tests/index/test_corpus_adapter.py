"""The adapter of a data directory: stored before anything is encoded, and kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from encoder.adapter import vector_space
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.errors import AdapterError
from encoder.tokenizer import BlockTokenizer
from index.adapt import ADAPTER_FILE, CorpusAdapter, adapt_data_directory, read_corpus_adapter
from index.directory.data_directory import locked, open_data_directory
from index.errors import CorpusError, DataDirectoryInUseError, StoreError
from index.progress import SilentProgress


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    words = ["river", "stone", "music", "winter", "letter"]
    lines = [{"id": f"d{n}", "text": f"{words[n % 5]} {words[(n + 1) % 5]}"} for n in range(20)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Adapting:
    """`adapt_data_directory` on one directory."""

    def __init__(self, data: Path, checkpoint: Checkpoint) -> None:
        self.data, self.checkpoint = data, checkpoint

    def __call__(self, corpus: Path) -> CorpusAdapter:
        tokenizer = BlockTokenizer(self.checkpoint)
        return adapt_data_directory(corpus, self.data, self.checkpoint, tokenizer, SilentProgress())


@pytest.fixture
def adapt(tmp_path: Path, checkpoint: Checkpoint) -> Adapting:
    return Adapting(tmp_path / "data", checkpoint)


def test_it_is_stored_and_kept(adapt: Adapting, corpus: Path, tmp_path: Path) -> None:
    assert read_corpus_adapter(adapt.data, adapt.checkpoint) is None
    first = adapt(corpus)
    assert not first.kept
    stored = read_corpus_adapter(adapt.data, adapt.checkpoint)
    assert stored is not None
    assert stored.digest == first.adapter.digest
    assert stored.documents == 20
    corpus.unlink()  # what is there is not fitted again
    again = adapt(corpus)
    assert again.kept
    assert again.adapter.digest == first.adapter.digest


def test_a_directory_of_its_own_vectors_is_refused(
    adapt: Adapting, corpus: Path, checkpoint: Checkpoint
) -> None:
    space = vector_space(checkpoint, None)
    open_data_directory(
        adapt.data, fingerprint=space.fingerprint, dimension=space.dimension
    ).close()
    with pytest.raises(StoreError, match=r"made without --adapt.*new data directory"):
        adapt(corpus)
    assert not (adapt.data / ADAPTER_FILE).exists()


def test_nothing_is_left_of_a_fit_that_failed(adapt: Adapting, tmp_path: Path) -> None:
    small = tmp_path / "small.jsonl"
    small.write_text('{"id": "a", "text": "One."}\n')
    with pytest.raises(CorpusError, match="has 1 readable documents"):
        adapt(small)
    with pytest.raises(CorpusError, match="no such file"):
        adapt(tmp_path / "absent.jsonl")
    assert not list(adapt.data.glob(f"{ADAPTER_FILE}*"))


def test_a_damaged_one_is_refused_and_not_fitted_over(adapt: Adapting, corpus: Path) -> None:
    adapt(corpus)
    path = adapt.data / ADAPTER_FILE
    path.write_bytes(path.read_bytes()[:-100])
    before = path.read_bytes()
    with pytest.raises(AdapterError, match=r"adapter\.npz: is damaged"):
        read_corpus_adapter(adapt.data, adapt.checkpoint)
    with pytest.raises(AdapterError, match=r"adapter\.npz: is damaged"):
        adapt(corpus)
    assert path.read_bytes() == before


def test_that_of_another_checkpoint_is_refused(
    adapt: Adapting, corpus: Path, checkpoint: Checkpoint
) -> None:
    adapt(corpus)
    other = replace(checkpoint, fingerprint="e" * 64)
    with pytest.raises(AdapterError, match=f"not for {'e' * 12}.*another data directory"):
        read_corpus_adapter(adapt.data, other)


def test_one_process_at_a_time_fits(adapt: Adapting, corpus: Path) -> None:
    with locked(adapt.data), pytest.raises(DataDirectoryInUseError):
        adapt(corpus)
    adapt(corpus)  # and the lock is free again


def test_a_file_that_cannot_be_read(adapt: Adapting) -> None:
    (adapt.data / ADAPTER_FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read"):
        read_corpus_adapter(adapt.data, adapt.checkpoint)

"""A reader beside the writer gives the same answers, however far the writer has gone meanwhile."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import index.lexical.frequencies
import index.lexical.segmented_index
from encoder.blocks import Receipt
from index.directory import follower
from index.directory.data_directory import SNAPSHOT_FILE, DataDirectory, open_data_directory
from index.document import Document
from index.engine.port import EncodedQuery
from index.errors import SnapshotError
from index.lexical.snapshot import LexicalSnapshot, load_snapshot
from index.search.calibrate import Scoring
from index.search.rank import search
from index.search.records import SearchAnswer, SearchOptions
from index.search.score import LinearFusion
from index.store.records import EncodedDocument
from index.vectors.lists import nprobe_steps
from tests.kit.index_fixtures import FINGERPRINT, unit_vectors

DIMENSION = 16
SPACE = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
RULE = LinearFusion(0.5)
WORDS = [f"word{number}" for number in range(60)]


def entries(start: int, count: int) -> list[EncodedDocument]:
    random = np.random.default_rng(start)
    vectors = unit_vectors(count, seed=start)
    return [
        EncodedDocument(
            Document(f"d{start + row}", " ".join(random.choice(WORDS, 30)), f"Title {start + row}"),
            vectors[row],
            Receipt(1, 1, 1, 0, 1),
        )
        for row in range(count)
    ]


def put(data: DataDirectory, start: int, count: int) -> None:
    data.index.apply(data.store.put(entries(start, count)))


def delete(data: DataDirectory, *numbers: int) -> None:
    data.index.apply(data.store.delete([f"d{number}" for number in numbers]))


def answer(data: DataDirectory, number: int) -> SearchAnswer:
    document = data.store.find([f"d{number}"])[f"d{number}"]
    _, vectors = data.store.vectors([document.vector_id])
    query = EncodedQuery("", vectors[0], vector_id=document.vector_id)
    options = SearchOptions(top_k=10)
    return search(data, query, options, scoring=Scoring(RULE))


def check_same(writer: DataDirectory, reader: DataDirectory, number: int = 7) -> None:
    """Bring the reader to the writer, and compare their answers."""
    position = follower.writer_state(writer)
    assert follower.follow_vectors(reader, position)
    if not follower.follow_words(reader, position, None):
        assert follower.follow_words(reader, position, writer.store.lexical.frequencies)
    ours, theirs = answer(reader, number), answer(writer, number)
    assert ours.hits == theirs.hits
    assert (ours.generation, ours.sequence) == (theirs.generation, theirs.sequence)
    assert reader.index.manifest.nprobe == writer.index.manifest.nprobe


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[DataDirectory]:
    with closing(open_data_directory(tmp_path / "data", **SPACE)) as data:
        put(data, 0, 100)
        data.index.publish()
        data.store.lexical.publish()
        yield data


@pytest.fixture
def reader(writer: DataDirectory) -> Iterator[DataDirectory]:
    with closing(open_data_directory(writer.path, **SPACE, read_only=True)) as data:
        yield data


def test_it_follows_writes(writer: DataDirectory, reader: DataDirectory) -> None:
    check_same(writer, reader)
    put(writer, 100, 5)
    check_same(writer, reader, 102)
    delete(writer, 3, 102)
    put(writer, 4, 1)  # a new text of the same id
    check_same(writer, reader)
    assert len(reader.index) == len(writer.index) == 103


def test_norms_are_by_the_frequencies_of_the_writer(
    writer: DataDirectory, reader: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.lexical.frequencies, "_ALWAYS_RENEWED", 0)
    for start in range(100, 109):  # the writer counts them again at some of these
        put(writer, start, 1)
    position = follower.writer_state(writer)
    follower.follow_vectors(reader, position)
    assert not follower.follow_words(reader, position, None)
    assert answer(reader, 7).hits != answer(writer, 7).hits
    check_same(writer, reader)
    put(writer, 109, 1)
    check_same(writer, reader)


def test_changes_the_writer_forgot_are_read_from_its_snapshot(
    writer: DataDirectory, reader: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def load(directory: Path, manifest: str) -> LexicalSnapshot:
        loaded.append(directory)
        return load_snapshot(directory, manifest)

    check_same(writer, reader)
    monkeypatch.setattr(index.lexical.segmented_index, "load_snapshot", load)
    put(writer, 100, 30)
    delete(writer, *range(10, 40))
    for _ in range(2):  # the removals are then in no snapshot and in no log
        writer.index.publish()
        writer.store.lexical.publish()
    put(writer, 200, 1)
    loaded.clear()
    check_same(writer, reader)
    assert len(reader.index) == len(writer.index)
    assert len(loaded) == 1  # and the words of all documents were not read again


def test_an_index_that_was_never_published_is_not_there(
    writer: DataDirectory, reader: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(writer, 100, 20)
    (writer.path / SNAPSHOT_FILE).unlink()
    (writer.path / SNAPSHOT_FILE).mkdir()
    with pytest.raises(SnapshotError):
        writer.index.rebuild()
    assert not follower.follow_vectors(reader, follower.writer_state(writer))


def test_nprobe_is_that_of_the_writer(
    writer: DataDirectory, reader: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.vectors.live_index.choose_nlist", lambda count: 50)
    writer.index.rebuild()
    least, *_, most = nprobe_steps(50)
    assert least < most
    for nprobe in (least, most):
        assert writer.index.set_nprobe(nprobe, generation=writer.index.manifest.generation)
        check_same(writer, reader)
        assert reader.index.manifest.nprobe == nprobe

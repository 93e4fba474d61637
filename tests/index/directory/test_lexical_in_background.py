"""A searchable copy of the words that has to be made keeps nobody from opening the directory."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import index.directory.data_directory
import index.lexical.segmented_index
from encoder.blocks import Receipt
from index.directory.data_directory import LEXICAL_DIRECTORY, DataDirectory, open_data_directory
from index.document import Document
from index.engine.query import EncodedQuery
from index.errors import LexicalIndexNotReadyError
from index.search.calibrate import ScoreCalibrator
from index.search.rank import search
from index.search.records import Mode, SearchAnswer, SearchOptions
from index.store.records import EncodedDocument
from tests.kit.calibrations import RULE

TEXTS = {
    "heron": "heron egret marsh reed bittern",
    "court": "court appeal judge",
    "motor": "motor bolt nut",
}
MODES: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")
QUERY = EncodedQuery("the heron in the reed", np.array([0.6, 0.8], dtype=np.float32))


def opened(path: Path, **options: bool) -> DataDirectory:
    return open_data_directory(path, fingerprint="a" * 64, dimension=2, **options)


def put(data: DataDirectory, texts: dict[str, str]) -> None:
    vector = np.array([1, 0], dtype=np.float32)
    entries = [
        EncodedDocument(Document(name, text), vector, Receipt(1, 1, 1, 0, 1))
        for name, text in texts.items()
    ]
    data.index.apply(data.store.put(entries))


def find(data: DataDirectory, mode: Mode) -> SearchAnswer:
    nothing = ScoreCalibrator(None, None, None)
    options = SearchOptions(top_k=5, mode=mode)
    return search(data, QUERY, options, fusion=RULE, calibrator=nothing, among=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory whose searchable copy of the words is missing."""
    path = tmp_path / "data"
    with closing(opened(path)) as data:
        put(data, TEXTS)
        data.store.lexical.publish()
    shutil.rmtree(path / LEXICAL_DIRECTORY)
    return path


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold the making of the copy half way until the event is set."""
    go_on = threading.Event()
    write_terms = index.lexical.segmented_index.write_terms

    def wait_and_read(*arguments: Any) -> Any:
        assert go_on.wait(120)
        return write_terms(*arguments)

    monkeypatch.setattr(index.lexical.segmented_index, "write_terms", wait_and_read)
    monkeypatch.setattr(index.directory.data_directory, "LEXICAL_SECONDS", 0.01)
    yield go_on
    go_on.set()


@contextmanager
def ended_in(seconds: float, work: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(seconds)
    assert not thread.is_alive()


def test_meanwhile_vectors_answer_and_then_words_do(path: Path, held: threading.Event) -> None:
    with closing(opened(path, in_background=True)) as data:
        assert data.store.lexical.building
        semantic, hybrid = find(data, "semantic"), find(data, "hybrid")
        assert (hybrid.scored_as, hybrid.hits) == ("semantic", semantic.hits)
        assert all(hit.lexical_score is None for hit in hybrid.hits)
        with pytest.raises(LexicalIndexNotReadyError, match="repeat the request"):
            find(data, "lexical")
        put(data, {"late": "the heron came late to the reed"})  # does not wait either
        data.store.delete(["heron"])
        assert {hit.id for hit in find(data, "semantic").hits} == {"late", "court", "motor"}
        held.set()
        data.store.lexical.wait(120)
        assert not data.store.lexical.building
        assert [hit.id for hit in find(data, "lexical").hits] == ["late"]
        after = {mode: find(data, mode) for mode in MODES}
        assert after["hybrid"].scored_as == "hybrid"
        data.store.lexical.publish()
    with closing(opened(path)) as data:
        assert {mode: find(data, mode).hits for mode in MODES} == {
            mode: answer.hits for mode, answer in after.items()
        }


def test_a_copy_that_is_made_at_once_is_waited_for(path: Path) -> None:
    with closing(opened(path, in_background=True)) as data:
        assert not data.store.lexical.building
        assert find(data, "hybrid").scored_as == "hybrid"


def test_opening_waits_without_in_background(path: Path, held: threading.Event) -> None:
    threading.Timer(0.2, held.set).start()
    with closing(opened(path)) as data:
        assert held.is_set()
        assert not data.store.lexical.building


def test_closing_does_not_wait_for_all_of_it(
    path: Path,
    held: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = opened(path, in_background=True)
    with ended_in(30, data.close):
        while not data.store.lexical._stopping.is_set():
            pass
        caplog.clear()
        held.set()
    assert caplog.records == []
    with closing(opened(path)) as again:
        assert len(find(again, "lexical").hits) == 1

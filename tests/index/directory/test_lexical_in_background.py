"""A searchable copy of the words that has to be made keeps nobody from opening the directory."""

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.blocks import Receipt
from index.directory.data_directory import LEXICAL_DIRECTORY, DataDirectory, open_data_directory
from index.document import Document
from index.engine.port import EncodedQuery
from index.errors import LexicalIndexNotReadyError
from index.progress import SilentProgress
from index.search.calibrate import Scoring
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
    options = SearchOptions(top_k=5, mode=mode)
    return search(data, QUERY, options, scoring=Scoring(RULE))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose searchable copy of the words is missing; of long texts, as it seems."""
    path = tmp_path / "data"
    with closing(opened(path)) as data:
        put(data, TEXTS)
        data.store.lexical.publish()
    shutil.rmtree(path / LEXICAL_DIRECTORY)
    monkeypatch.setattr("index.followers.AT_OPENING", 1)
    return path


def test_meanwhile_vectors_answer_and_then_words_do(path: Path) -> None:
    with (
        closing(opened(path, in_background=True)) as data,
        closing(opened(path, read_only=True)) as reader,
    ):
        for searched in (data, reader):
            assert searched.store.counts_words
            semantic, hybrid = find(searched, "semantic"), find(searched, "hybrid")
            assert (hybrid.scored_as, hybrid.hits) == ("semantic", semantic.hits)
            assert all(hit.lexical_score is None for hit in hybrid.hits)
            with pytest.raises(LexicalIndexNotReadyError, match="repeat the request"):
                find(searched, "lexical")
        put(data, {"late": "the heron came late to the reed"})
        data.store.delete(["heron"])
        assert {hit.id for hit in find(data, "semantic").hits} == {"late", "court", "motor"}
        data.store.lexical.finish(SilentProgress(), lambda: True)  # given up at once
        assert data.store.counts_words
        data.store.lexical.finish(SilentProgress())
        assert not data.store.counts_words
        assert not reader.store.counts_words
        assert [hit.id for hit in find(data, "lexical").hits] == ["late"]
        assert data.store.lexical.changes_since_title_refresh() == 1
        after = {mode: find(data, mode) for mode in MODES}
        assert after["hybrid"].scored_as == "hybrid"
        data.store.lexical.publish()
    with closing(opened(path)) as data:
        assert {mode: find(data, mode).hits for mode in MODES} == {
            mode: answer.hits for mode, answer in after.items()
        }


def test_opening_counts_few_documents_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.followers.AT_OPENING", len(TEXTS))
    with closing(opened(path, in_background=True)) as data:
        assert find(data, "hybrid").scored_as == "hybrid"


def test_opening_counts_all_without_in_background(path: Path) -> None:
    with closing(opened(path)) as data:
        assert find(data, "hybrid").scored_as == "hybrid"

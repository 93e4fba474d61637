"""What another channel and another engine have to bring: a few lines each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from encoder.arrays import Float32, Int64
from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.channels import CHANNELS, Found
from index.engine.local import LocalEngine
from index.engine.port import VECTOR, WORDS, Candidates, EncodedQuery, SearchStage, Seconds
from index.errors import IndexingError
from index.id_set import IdSet
from index.lexical.scoring import TermWeight
from index.search.records import Mode, SearchOptions
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.store.filters import Filter
from index.vectors.live_index import LiveIndex
from tests.index.search.plane import MODES, answer, direction, names, put

QUERY = EncodedQuery("zinc", direction(0))


class IdChannel:
    """1 for a document whose id begins with the text of the query."""

    stage: ClassVar[SearchStage] = "search"
    weight: ClassVar[float] = 0.9
    silent = False

    def __init__(self, store: DocumentStore, _: LiveIndex, query: EncodedQuery) -> None:
        self.store, self.query = store, query

    def find(self, k: int, among: IdSet | None, *, alone: bool) -> Found:
        ids = self.store.log.added_after(0)[1]
        return Found(ids[self.score(ids) > 0])

    def score(self, vector_ids: Int64) -> Float32:
        found = self.store.get(vector_ids.tolist())
        begins = [found[n].id.startswith(self.query.text) for n in vector_ids.tolist()]
        return np.array(begins, dtype=np.float32)


@dataclass(slots=True)
class ExactEngine:
    """Compares every vector and every word, in memory."""

    store: DocumentStore
    position: int = 0
    exact: bool = True
    generation: int = 0
    failure: IndexingError | None = None

    def apply(self, change: Changes) -> None:
        self.position = change.sequence

    def catch_up(self) -> None:
        self.position = self.store.sequence

    def open(
        self, query: EncodedQuery, seconds: Seconds, where: Filter | None = None
    ) -> "ExactSearch":
        return ExactSearch(self, query)


@dataclass(slots=True)
class ExactSearch:
    engine: ExactEngine
    query: EncodedQuery

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        ids = self.engine.store.log.added_after(0)[1]
        ids = ids if among is None else ids[among.contains(ids)]
        return replace(self.score(channels, ids), exhausted=True)

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        store, words = self.engine.store, self.engine.store.lexical
        ids, vectors = store.vectors(vector_ids)
        scores = {VECTOR: vectors @ self.query.vector}
        if WORDS in channels:
            scores[WORDS] = words.score(words.read(self.query.text), ids)
        return Candidates(ids, scores, position=self.engine.position).present()

    def align(self, vector_ids: Int64) -> Float32 | None:
        return None

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        return {}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = open_data_directory(tmp_path / "data", fingerprint="a" * 64, dimension=2)
    put(opened, {"near": ("lead", 10), "zinc-far": ("tin", 80), "middle": ("zinc", 40)})
    yield opened
    opened.close()


def test_a_channel_of_its_own_weight_ranks_in_hybrid_mode(three: DataDirectory) -> None:
    engine = LocalEngine(three.store, three.index, {**CHANNELS, "id": IdChannel})
    options = SearchOptions(top_k=3)
    plain = {hit.id: hit.score for hit in answer(three, QUERY, options).hits}
    found = answer(replace(three, engine=engine), QUERY, options).hits
    assert found[0].id == "zinc-far" != max(plain, key=lambda name: plain[name])
    for hit in found:
        begins = hit.id == "zinc-far"
        assert hit.score == pytest.approx(0.1 * plain[hit.id] + 0.9 * begins, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_another_engine_gives_the_same_answers(three: DataDirectory, mode: Mode) -> None:
    engine, options = ExactEngine(three.store), SearchOptions(top_k=3, mode=mode)
    engine.catch_up()
    local = answer(three, QUERY, options)
    found = answer(replace(three, engine=engine), QUERY, options)
    assert found.sequence == local.sequence > 0
    expected = {hit.id: hit.score for hit in local.hits}
    assert names(found.hits)[: len(expected)] == list(expected)
    for hit in found.hits:
        assert hit.score == pytest.approx(expected.get(hit.id, 0.0), abs=1e-6)

"""Filtered searches: only documents that pass, and k of them whenever so many exist."""

from collections.abc import Iterator

import numpy as np
import pytest

from encoder.arrays import Float32
from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.lexical.snapshot import LexicalSnapshot
from index.search.records import Mode, SearchAnswer, SearchOptions
from index.search.score import LinearFusion
from index.store.filters import And, Bound, Exists, Filter, Not, OneOf, Range, matches
from tests.index.search.plane import MODES, answer, entry, stored_query

DOCUMENTS = 1_200  # so many that the rarest terms alone find too few that pass
RULE = LinearFusion(0.5)
# Selects what shares with the query only a word that nearly half of the documents have.
COMMON = And((Range("/number", Bound(600, True), None), OneOf("/rare", (False,))))
FILTERS: dict[str, tuple[Filter, int]] = {
    "half": (OneOf("/even", (True,)), 600),
    "not half": (Not(OneOf("/even", (True,))), 600),
    "ten": (Range("/number", Bound(20, True), Bound(30, False)), 10),
    "one": (OneOf("/number", (7,)), 1),
    "none": (Exists("/nothing"), 0),
    "all": (Not(Exists("/nothing")), DOCUMENTS),
    "common": (COMMON, 590),
}


def find(
    data: DataDirectory, query: EncodedQuery, k: int, mode: Mode, where: Filter | None = None
) -> SearchAnswer:
    return answer(data, query, SearchOptions(top_k=k, mode=mode, where=where), RULE)


def vectors() -> Float32:
    random = np.random.default_rng(1).normal(size=(DOCUMENTS + 1, 8)).astype(np.float32)
    unit: Float32 = random / np.linalg.norm(random, axis=1, keepdims=True)
    return unit


QUERY = EncodedQuery("heron marsh common reed", vectors()[-1])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDirectory]:
    path = tmp_path_factory.mktemp("among") / "data"
    opened = open_data_directory(path, fingerprint="a" * 64, dimension=8)
    entries = []
    for number, vector in enumerate(vectors()[:-1]):
        rare = number < 600 or number % 60 == 0
        birds = ("heron marsh", "marsh reed", "reed heron")[number % 3]
        text = birds if rare else "common motor"
        if number == 0:
            text = "bolt nut"
        metadata = {"number": number, "even": number % 2 == 0, "rare": rare}
        entries.append(entry(f"d{number}", text, vector, metadata=metadata))
    opened.index.apply(opened.store.put(entries))
    yield opened
    opened.close()


@pytest.mark.parametrize("k", [1, 10, 400])
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("mode", MODES)
def test_k_hits_of_a_filter(data: DataDirectory, mode: Mode, name: str, k: int) -> None:
    where, count = FILTERS[name]
    hits = find(data, QUERY, k, mode, where).hits
    assert len({hit.id for hit in hits}) == len(hits) == min(k, count)
    assert all(matches(where, hit.metadata) for hit in hits)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_changes_no_score_and_no_order(data: DataDirectory, mode: Mode) -> None:
    where, _ = FILTERS["half"]
    whole = find(data, QUERY, DOCUMENTS, mode).hits
    kept = find(data, QUERY, 20, mode, where).hits
    expected = [hit.score for hit in whole if matches(where, hit.metadata)]
    assert [hit.score for hit in kept] == pytest.approx(expected[:20], abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_stored_query_does_not_take_the_place_of_a_match(data: DataDirectory, mode: Mode) -> None:
    query = stored_query(data, "d24", vectors()[24])
    hits = find(data, query, 9, mode, FILTERS["ten"][0]).hits
    assert len(hits) == 9
    assert "d24" not in [hit.id for hit in hits]


def test_unknown_words_read_no_document(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LexicalSnapshot, "present_ids", None)
    query = EncodedQuery("unknown", vectors()[-1])
    assert find(data, query, 5, "lexical", FILTERS["half"][0]).hits == ()

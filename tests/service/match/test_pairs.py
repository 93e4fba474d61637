"""GET /pairs: every pair once, with the scores of POST /match."""

import json
from dataclasses import replace
from typing import Any

import pytest

import index.search.pairs
from tests.kit.calibrations import BY_RATE, of_corpus
from tests.kit.service_fixtures import with_parts


def pairs_of(client: Any, path: str = "/pairs?min_score=-1") -> list[dict[str, Any]]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize("tile", [1, 3, 2_048])
def test_every_pair_has_the_score_of_match(
    library: Any, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch, tile: int
) -> None:
    monkeypatch.setattr(index.search.pairs, "TILE", tile)
    pairs = pairs_of(library)
    assert len(pairs) == len(texts) * (len(texts) - 1) // 2
    found = {frozenset((item["left"], item["right"])): item for item in pairs}
    assert len(found) == len(pairs)
    for name in texts:
        asked = {"id": name, "top_k": 50}
        for match in library.post("/match", json=asked).json()["matches"]:
            pair = found[frozenset((name, match["id"]))]
            assert pair["score"] == pytest.approx(match["score"], abs=1e-5)
            titles = {pair["left"]: pair["left_title"], pair["right"]: pair["right_title"]}
            assert titles[match["id"]] == match["title"]
    assert pairs_of(library) == pairs


def test_a_bound_leaves_the_other_pairs_out(library: Any) -> None:
    everything = pairs_of(library)
    scores = sorted(item["score"] for item in everything)
    least = (scores[1] + scores[2]) / 2
    kept = [item for item in everything if item["score"] >= least]
    assert pairs_of(library, f"/pairs?min_score={least}") == kept
    assert pairs_of(library, f"/collections/default/pairs?min_score={least}") == kept
    cosine = sorted(item["vector_score"] for item in everything)[2]
    near = [item for item in everything if item["vector_score"] >= cosine]
    assert pairs_of(library, f"/pairs?min_vector_score={cosine!r}") == near


@pytest.mark.parametrize(
    ("bound", "measure"),
    [("min_probability", "probability"), ("max_false_positive_rate", "false_positive_rate")],
)
def test_calibrated_bounds_leave_the_other_pairs_out(filled: Any, bound: str, measure: str) -> None:
    filled.app.state.engine = with_parts(filled.app.state.engine, scores=BY_RATE)
    every = pairs_of(filled)
    limit = sorted(query["score"] for query in every)[2]
    (least,) = (query[measure] for query in every if query["score"] == limit)
    kept = pairs_of(filled, f"/pairs?{bound}={least!r}")
    assert kept == [query for query in every if query["score"] >= limit]
    assert 0 < len(kept) < len(every)


def test_by_default_pairs_are_nearer_than_nearly_all_random_ones(filled: Any) -> None:
    every = pairs_of(filled, "/pairs?min_vector_score=-1")
    least = sorted(pair["vector_score"] for pair in every)[3]
    corpus = replace(of_corpus(), near_cosine=least - 0.0001)
    judge = replace(BY_RATE, corpus=corpus)
    filled.app.state.engine = with_parts(filled.app.state.engine, scores=judge)
    near = {(pair["left"], pair["right"]) for pair in every if pair["vector_score"] >= least}
    found = pairs_of(filled)
    assert {(pair["left"], pair["right"]) for pair in found} == near
    assert len(found) == len(every) - 3


def test_few_documents_and_copies(client: Any) -> None:
    assert pairs_of(client) == []
    client.post("/index", json={"documents": [{"id": "a", "text": "Ants find paths."}]})
    assert pairs_of(client) == []
    copies = [{"id": name, "text": "Ants find paths."} for name in "bc"]
    client.post("/index", json={"documents": copies})
    found = pairs_of(client)
    assert [(item["left"], item["right"]) for item in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert pairs_of(client, "/pairs?min_score=-1&collapse=families") == []


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("", "min_score"),
        ("?max_false_positive_rate=0.1", "max_false_positive_rate"),
        ("?min_score=2", "min_score"),
        ("?min_score=nan", "min_score"),
        ("?min_vector_score=2", "min_vector_score"),
        ("?min_score=0&collapse=all", "collapse"),
    ],
)
def test_what_cannot_be_asked_is_named(library: Any, query: str, parameter: str) -> None:
    response = library.get(f"/pairs{query}")
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["parameter"] == parameter

"""`rerank` of POST /match as a client sees it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encoder.reranker.checkpoint import load_reranker_checkpoint
from encoder.reranker.onnx_reranker import OnnxReranker
from encoder.reranker.score_fusion import FusionWeights, ScoreFusion, write_score_fusion

MakeClient = Callable[..., Any]

TITLES = {"ants": "All of ants", "tax law": "Assessments"}


@pytest.fixture
def reranking(make_client: MakeClient, tiny_reranker: Path, texts: dict[str, str]) -> Any:
    """Return a client of a service with a reranker that holds TEXTS."""
    client = make_client(reranker=tiny_reranker)
    documents = [{"id": name, "title": TITLES.get(name, ""), "text": texts[name]} for name in texts]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def answer(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize("mode", ["semantic", "lexical", "hybrid"])
def test_candidates_are_ordered_by_what_the_reranker_says(
    reranking: Any, tiny_reranker: Path, texts: dict[str, str], mode: str
) -> None:
    question = {"id": "ants", "mode": mode}
    before = answer(reranking.post("/match", json=question))
    after = answer(reranking.post("/match", json={**question, "rerank": 20}))
    assert after["rerank"] == {
        "reranked": True,
        "candidates": len(before["matches"]),
        "rescored": len(before["matches"]),
        "reranker": "tiny-reranker",
    }
    assert (before["rerank"], before["matches"][0]["first_stage_score"]) == (None, None)
    reranker = OnnxReranker(load_reranker_checkpoint(tiny_reranker))
    readings = {name: f"{TITLES[name]}\n\n{texts[name]}" for name in TITLES}
    read = {name: reranker.read(text) for name, text in {**texts, **readings}.items()}
    first_stage = {item["id"]: item["score"] for item in before["matches"]}
    for hit in after["matches"]:
        logit = reranker.score(read["ants"], read[hit["id"]])
        assert hit["first_stage_score"] == first_stage[hit["id"]]
        expected = reranker.rule.weights_of(mode).score(hit["first_stage_score"], logit)
        assert hit["score"] == pytest.approx(expected, abs=1e-6)
        assert hit["probability"] is None
    scores = [entry["score"] for entry in after["matches"]]
    assert scores == sorted(scores, reverse=True)
    assert after["timings"]["rerank"] > 0


@pytest.mark.parametrize("mode", ["semantic", "lexical", "hybrid"])
def test_only_what_the_filter_selects_is_reranked(
    reranking: Any, texts: dict[str, str], mode: str
) -> None:
    documents = [
        {"id": name, "text": text, "metadata": {"kept": name in ("bees", "ants", "tax law")}}
        for name, text in texts.items()
    ]
    assert reranking.post("/index", json={"documents": documents}).status_code == 200
    where = {"field": "kept", "equal": True}
    body = {"id": "ants", "mode": mode, "filter": where, "exclude": ["tax law"], "top_k": 1}
    found = answer(reranking.post("/match", json={**body, "rerank": 20}))
    assert [hit["id"] for hit in found["matches"]] == ["bees"]
    assert found["rerank"]["candidates"] == 1


def test_the_best_may_come_from_beyond_top_k(reranking: Any) -> None:
    everything = answer(reranking.post("/match", json={"id": "ants", "rerank": 20}))["matches"]
    for top_k in (1, 2):
        question = {"id": "ants", "top_k": top_k, "rerank": {"candidates": 20}}
        assert answer(reranking.post("/match", json=question))["matches"] == everything[:top_k]


def test_what_is_not_read_follows_in_its_order(reranking: Any) -> None:
    before = answer(reranking.post("/match", json={"id": "ants"}))["matches"]
    after = answer(reranking.post("/match", json={"id": "ants", "rerank": 1}))["matches"]
    assert [item["id"] for item in after] == [item["id"] for item in before]
    assert after[0]["first_stage_score"] == before[0]["score"]
    assert after[1:] == before[1:]


def test_out_of_time_gives_the_order_of_the_first_stage(reranking: Any) -> None:
    before = answer(reranking.post("/match", json={"text": "Ants and bees.", "mode": "hybrid"}))
    question = {
        "text": "Ants and bees.",
        "mode": "hybrid",
        "rerank": {"candidates": 4, "budget_ms": 1e-3},
    }
    after = answer(reranking.post("/match", json=question))
    assert after["matches"] == before["matches"]
    assert after["rerank"]["reranked"] is False
    assert after["rerank"]["rescored"] < after["rerank"]["candidates"] == 4
    assert "longmatch_rerank_out_of_time_total 1.0" in reranking.get("/metrics").text


def test_the_last_order_is_explained(reranking: Any) -> None:
    question = {"id": "ants", "rerank": 20, "explain": {"matches": 2, "passages": 3}}
    alone = answer(reranking.post("/match", json={"id": "ants", "rerank": 20}))
    both = answer(reranking.post("/match", json=question))
    assert [hit["id"] for hit in both["matches"]] == [hit["id"] for hit in alone["matches"]]
    explained = [hit["explanation"] is not None for hit in both["matches"]]
    assert explained == [True, True] + [False] * (len(explained) - 2)
    assert both["rerank"]["reranked"] is True
    assert {"rerank", "explain"} <= set(both["timings"])


def test_scores_of_vectors_alone_are_mixed_as_such(
    make_client: MakeClient, tiny_reranker: Path, texts: dict[str, str], tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(tiny_reranker, tmp_path / "fitted"))
    mixtures = {"semantic": FusionWeights(0.0, 1.0), "hybrid": FusionWeights(1.0, 1.0)}
    write_score_fusion(load_reranker_checkpoint(directory), ScoreFusion(weights=mixtures))
    client = make_client(reranker=directory)
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    for text, by_vectors in [("Zxqv.", True), (texts["bees"], False)]:  # no word is indexed; all
        question = {"text": text, "mode": "hybrid", "rerank": 20}
        found = answer(client.post("/match", json=question))["matches"]
        unchanged = [item["score"] == item["first_stage_score"] for item in found]
        assert unchanged == [by_vectors] * len(texts)


def test_several_queries_at_once(reranking: Any, texts: dict[str, str]) -> None:
    queries = [{"id": "bees"}, {"text": texts["bees"]}]
    question = {"queries": queries, "mode": "semantic", "rerank": 20}
    response = answer(reranking.post("/match", json=question))
    of_id, of_text = response["results"]
    assert len(of_text["matches"]) == len(of_id["matches"]) + 1  # it finds itself
    scores = {item["id"]: item["score"] for item in of_text["matches"]}
    for hit in of_id["matches"]:
        assert hit["score"] == pytest.approx(scores[hit["id"]], abs=1e-5)


def test_a_bound_holds_for_the_score_that_is_given(reranking: Any) -> None:
    everything = answer(reranking.post("/match", json={"id": "ants", "rerank": 20}))["matches"]
    bound = everything[1]["score"]
    question = {"id": "ants", "rerank": 20, "min_score": bound}
    assert answer(reranking.post("/match", json=question))["matches"] == everything[:2]


@pytest.mark.parametrize(
    ("changes", "pointer", "limit"),
    [
        ({"rerank": 201}, "#/rerank/candidates", 200),
        ({"rerank": 0}, "#/rerank/candidates", 1),
        ({"rerank": "all"}, "#/rerank", None),
        ({"rerank": {"candidates": 5, "budget_ms": 6000}}, "#/rerank/budget_ms", 5000),
        ({"rerank": {"candidates": 5, "depth": 2}}, "#/rerank/depth", None),
        ({"rerank": 5, "min_probability": 0.5}, "#/min_probability", None),
        ({"rerank": 5, "max_false_positive_rate": 0.5}, "#/max_false_positive_rate", None),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    reranking: Any, changes: dict[str, Any], pointer: str, limit: float | None
) -> None:
    response = reranking.post("/match", json={"id": "ants", **changes})
    assert response.status_code == 422, response.text
    errors = {error["pointer"]: error for error in response.json()["errors"]}
    assert pointer in errors
    assert errors[pointer].get("limit") == limit


def test_a_service_without_a_reranker_says_so(library: Any) -> None:
    response = library.post("/match", json={"id": "ants", "rerank": 5})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["pointer"] == "#/rerank"
    assert library.get("/version").json()["reranker"] is None


def test_the_reranker_is_named_and_its_stage_measured(reranking: Any) -> None:
    reranking.post("/match", json={"id": "ants", "rerank": 2})
    version = reranking.get("/version").json()
    assert version["reranker"] == "tiny-reranker"
    assert version["limits"]["max_rerank_candidates"] == 200
    metrics = reranking.get("/metrics").text
    assert 'stage_duration_seconds_count{stage="rerank"} 1.0' in metrics
    assert "longmatch_reranked_pairs_total 2.0" in metrics

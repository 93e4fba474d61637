"""`mode` of POST /match as a client sees it."""

from typing import Any

import pytest

from index.search.fusion import DEFAULT_RULE


def matches(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["matches"]
    return found


def test_lexical_mode_finds_shared_words_and_names_them(library: Any) -> None:
    response = library.post("/match", json={"text": "Tribunal bees!", "mode": "lexical"})
    found = matches(response)
    assert {one["id"] for one in found} == {"tax law", "bees"}
    for one in found:
        assert one["score"] == one["lexical_score"] > 0
        assert -1 <= one["vector_score"] <= 1
        assert -1 <= one["semantic_score"] <= 1
        assert one["alignment_score"] is None
        assert sum(term["weight"] for term in one["terms"]) == pytest.approx(1.0)
    by_id = {one["id"]: one for one in found}
    assert [term["term"] for term in by_id["tax law"]["terms"]] == ["tribunal"]
    assert [term["term"] for term in by_id["bees"]["terms"]] == ['"bees"', "bees"]
    timings = response.json()["timings"]
    assert timings.keys() == {"tokenize", "queue", "encode", "lexical", "search", "fetch"}
    assert response.json()["receipt"]["tokens"] > 0
    assert response.json()["alignment"] is None


def semantic(one: dict[str, Any]) -> float:
    """Return the semantic score of a match that was aligned, from what it is made of."""
    weight = DEFAULT_RULE.alignment_weight("hybrid")
    return float((1 - weight) * one["vector_score"] + weight * one["alignment_score"])


def test_hybrid_mode_joins_both_scores(library: Any, texts: dict[str, str]) -> None:
    found = matches(library.post("/match", json={"id": "ants", "mode": "hybrid"}))
    assert {one["id"] for one in found} == set(texts) - {"ants"}
    assert found[0]["id"] == "bees"
    assert [one["score"] for one in found] == sorted((o["score"] for o in found), reverse=True)
    weight = DEFAULT_RULE.lexical_weight
    for one in found:
        expected = (1 - weight) * one["semantic_score"] + weight * one["lexical_score"]
        assert one["score"] == pytest.approx(expected, abs=1e-6)
        assert one["semantic_score"] == pytest.approx(semantic(one), abs=1e-6)
    assert "colony" not in [term["term"] for term in found[0]["terms"]]
    assert "queen" in [term["term"] for term in found[0]["terms"]]


def test_hybrid_mode_is_the_default(library: Any) -> None:
    found = matches(library.post("/match", json={"id": "ants"}))
    assert found == matches(library.post("/match", json={"id": "ants", "mode": "hybrid"}))


def test_semantic_mode_reads_no_words(library: Any) -> None:
    found = matches(library.post("/match", json={"id": "ants", "mode": "semantic"}))
    for one in found:
        assert (one["lexical_score"], one["terms"]) == (None, [])
        assert one["score"] == one["semantic_score"] == pytest.approx(semantic(one), abs=1e-6)


def test_a_text_without_an_indexed_word(library: Any) -> None:
    text = {"text": "Zyzzyva quokka!"}
    assert matches(library.post("/match", json={**text, "mode": "lexical"})) == []
    alone = matches(library.post("/match", json={**text, "mode": "semantic"}))
    found = matches(library.post("/match", json={**text, "mode": "hybrid"}))
    assert [one["id"] for one in found] == [one["id"] for one in alone]


@pytest.mark.parametrize("mode", ["fuzzy", "", "SEMANTIC", 3, None])
def test_an_unknown_mode_is_refused_by_name(library: Any, mode: object) -> None:
    response = library.post("/match", json={"text": "Ants.", "mode": mode})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["pointer"] == "#/mode"
    if mode is not None:
        assert all(name in error["detail"] for name in ("semantic", "lexical", "hybrid"))


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_bounds_hold_for_the_score_of_the_mode(library: Any, mode: str) -> None:
    everything = matches(library.post("/match", json={"id": "ants", "mode": mode}))
    bound = everything[0]["score"]
    some = matches(library.post("/match", json={"id": "ants", "mode": mode, "min_score": bound}))
    assert [one["id"] for one in some] == [everything[0]["id"]]
    one = matches(library.post("/match", json={"id": "ants", "mode": mode, "top_k": 1}))
    assert one == everything[:1]
    refused = library.post("/match", json={"id": "ants", "mode": mode, "min_probability": 0.5})
    assert refused.status_code == 422
    assert mode in refused.json()["errors"][0]["detail"]


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_what_was_deleted_or_replaced_is_not_found_by_its_words(filled: Any, mode: str) -> None:
    assert filled.delete("/documents/bees").status_code in (200, 204)
    new = {"id": "ants", "text": "Glaciers carve valleys."}
    assert filled.post("/index", json={"documents": [new]}).status_code == 200
    found = matches(filled.post("/match", json={"text": "queen nectar ice", "mode": mode}))
    assert "bees" not in {one["id"] for one in found}
    assert all(not one["terms"] for one in found if one["id"] == "ants")


def test_the_stage_is_measured(filled: Any) -> None:
    filled.post("/match", json={"id": "ants", "mode": "lexical"})
    assert 'stage_duration_seconds_count{stage="lexical"} 1.0' in filled.get("/metrics").text

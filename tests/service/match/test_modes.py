"""`mode` of POST /match as a client sees it."""

from typing import Any

import pytest


def matches(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["matches"]
    return found


def test_lexical_mode_finds_shared_words_and_names_them(library: Any) -> None:
    response = library.post("/match", json={"text": "Tribunal bees!", "mode": "lexical"})
    found = matches(response)
    assert {element["id"] for element in found} == {"tax law", "bees"}
    for item in found:
        assert item["score"] == item["lexical_score"] > 0
        assert -1 <= item["vector_score"] <= 1
        assert -1 <= item["semantic_score"] <= 1
        assert item["alignment_score"] is None
        assert sum(term["weight"] for term in item["terms"]) == pytest.approx(1.0)
    by_id = {entry["id"]: entry for entry in found}
    assert [term["term"] for term in by_id["tax law"]["terms"]] == ["tribunal"]
    assert [term["term"] for term in by_id["bees"]["terms"]] == ['"bees"', "bees"]
    timings = response.json()["timings"]
    assert timings.keys() == {"tokenize", "queue", "encode", "lexical", "search", "fetch"}
    assert response.json()["receipt"]["tokens"] > 0
    assert response.json()["alignment"] is None

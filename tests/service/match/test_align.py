"""`align` of POST /match, and the budget in the settings, as a client sees them."""

from collections.abc import Callable
from typing import Any

import pytest

from index.search.calibrate import Scoring
from index.search.records import Mode
from index.search.score import LinearFusion
from tests.kit.service_fixtures import fill, with_parts

RULE = LinearFusion(0.25, 0.5, 0.75, expected_slope=0.25, expected_intercept=0.125)
ALL = {"aligned": True, "candidates": 3, "scored": 3}
NONE = {"aligned": False, "candidates": 3, "scored": 0}


@pytest.fixture
def aligning(filled: Any) -> Any:
    """Return a client of a service whose modes give alignment weights of their own."""
    filled.app.state.engine = with_parts(filled.app.state.engine, scores=Scoring(RULE))
    return filled


def ask(client: Any, **asked: Any) -> dict[str, Any]:
    response = client.post("/match", json={"id": "ants", **asked})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_candidates_are_ranked_by_their_alignment(aligning: Any, mode: Mode) -> None:
    answer = ask(aligning, mode=mode)
    assert answer["alignment"] == ALL
    assert answer["timings"]["align"] > 0
    for match in answer["matches"]:
        assert 0 <= match["alignment_score"] <= 1
        weight = RULE.alignment_weight(mode)
        semantic = (1 - weight) * match["vector_score"] + weight * match["alignment_score"]
        assert match["semantic_score"] == pytest.approx(semantic, abs=1e-6)
        words = match["lexical_score"]
        expected = semantic if mode == "semantic" else 0.75 * semantic + 0.25 * words
        assert match["score"] == pytest.approx(expected, abs=1e-6)
    scores = [match["score"] for match in answer["matches"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["matches"] == ask(aligning, mode=mode, align=True)["matches"]


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
@pytest.mark.parametrize("align", [False, {"budget_ms": 0}])
def test_what_is_not_aligned_has_the_score_to_expect(
    aligning: Any, mode: Mode, align: object
) -> None:
    answer = ask(aligning, mode=mode, align=align)
    assert answer["alignment"] == (NONE if align else None)
    assert ("align" in answer["timings"]) == bool(align)
    assert len(answer["matches"]) == 3
    for match in answer["matches"]:
        assert match["alignment_score"] is None
        weight, line = RULE.alignment_weight(mode), 0.25 * match["vector_score"] + 0.125
        expected = (1 - weight) * match["vector_score"] + weight * line
        assert match["semantic_score"] == pytest.approx(expected, abs=1e-6)


def test_only_the_first_candidates_are_aligned(aligning: Any) -> None:
    first = ask(aligning, mode="semantic", align=False)["matches"][0]["id"]
    answer = ask(aligning, mode="semantic", align={"candidates": 1})
    assert answer["alignment"] == {"aligned": True, "candidates": 1, "scored": 1}
    aligned = {hit["id"] for hit in answer["matches"] if hit["alignment_score"] is not None}
    assert aligned == {first}


def test_nothing_is_aligned_without_a_budget(make_client: Callable[..., Any]) -> None:
    client = fill(make_client(alignment_budget_ms=0))
    assert ask(client)["alignment"] == NONE
    assert client.get("/documents/ants/similar").json()["alignment"] == NONE
    assert ask(client, align={"budget_ms": 60_000})["alignment"] == ALL

"""A service with a CoLDE: sections and chunks are compared by the model's own vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PART = "The river runs on, and the stones lie still. Music is heard in winter. "
HEADED = "\n\n".join(f"# Part {n}\n\n{PART * (n + 1)}" for n in range(3))
PLAIN = f"{PART * 2}\n\nA letter came by the engine. It was of the harbour and the bridge. {PART}"


@pytest.fixture
def client(make_client: Callable[..., Any], tiny_colde: Path) -> Any:
    client = make_client(encoder=tiny_colde)
    documents = [{"id": "headed", "text": HEADED}, {"id": "plain", "text": PLAIN}]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def test_comparisons_use_section_vectors(client: Any) -> None:
    body = {"left": {"id": "headed"}, "right": {"text": PLAIN}, "passages": 5}
    answer = client.post("/compare", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["section_scores_from"] == "section vectors"
    assert np.shape(found["section_scores"]) == (3, 2)
    pairs = found["attended_blocks"]
    assert len(pairs) == 5
    for pair in pairs:
        for side, text in (("left", HEADED), ("right", PLAIN)):
            place = pair[side]
            assert text[place["start"] : place["end"]] == place["text"] != ""
        assert 0 < pair["left_attention"] < 1
        assert 0 < pair["right_attention"] < 1
    strengths = [pair["times_average"] for pair in pairs]
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[0] > 1
    same = client.post("/compare", json={"left": {"id": "plain"}, "right": {"text": PLAIN}}).json()
    assert np.diag(same["section_scores"]) == pytest.approx(1, abs=1e-2)  # stored in 8 bits


def test_matches_are_explained_by_them(client: Any) -> None:
    answer = client.post("/match", json={"id": "headed", "explain": {"passages": 2}}).json()
    (match,) = answer["matches"]
    assert match["explanation"]["section_scores_from"] == "section vectors"
    assert len(match["explanation"]["attended_blocks"]) == 2


def test_the_page_shows_them(client: Any) -> None:
    body = {"left": {"id": "headed"}, "right": {"id": "plain"}}
    page = client.post("/compare", json=body, headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert "how close two sections are, as the model reads them" in page.text
    assert 'id="attended"' in page.text

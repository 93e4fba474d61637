"""POST /compare, and `explain` in POST /match, as a client sees them."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.kit.problems import problem

LONG = " ".join(
    f"Sentence number {n} tells how the {word} of colony {n} carries {n + 3} leaves home."
    for n, word in enumerate(["queen", "worker", "soldier", "scout", "nurse"] * 6)
)


def blocks_encoded(client: Any) -> float:
    metrics = client.app.state.engine.metrics
    return metrics.registry.get_sample_value("longmatch_encoded_blocks_total") or 0.0


def refused(client: Any, body: Any, status: int = 422) -> list[str]:
    response = client.post("/compare", json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return [error["pointer"] for error in response.json()["errors"]]


@pytest.fixture
def stored(make_client: Any) -> Any:
    """Return a client of an application that holds parts of LONG, and remembers no blocks."""
    client = make_client(block_cache_bytes=0)
    documents = [
        {"id": f"d{n}", "title": f"Part {n}", "text": f"{LONG[150 * n : 150 * n + 900]} End {n}."}
        for n in range(10)
    ]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def test_two_texts_are_compared(library: Any) -> None:
    right = f"Rivers carve valleys over thousands of years. {LONG}"
    response = library.post("/compare", json={"left": {"text": LONG}, "right": {"text": right}})
    assert response.status_code == 200
    answer = response.json()
    assert answer["relation"] == "near-copy"
    assert answer["left_coverage"] == 1.0
    assert 0.9 < answer["right_coverage"] < 1.0
    (passage,) = answer["passages"]
    assert passage["kind"] == "verbatim"
    for side, text in (("left", LONG), ("right", right)):
        place = passage[side]
        assert text[place["start"] : place["end"]] == place["text"]
    assert passage["left"]["text"] == passage["right"]["text"] == LONG
    sections = answer["left_sections"], answer["right_sections"]
    assert len(answer["section_scores"]) == len(sections[0])
    assert {len(row) for row in answer["section_scores"]} == {len(sections[1])}
    assert answer["section_scores_from"] == "block vectors"
    assert answer["attended_blocks"] is None  # SMITH has no attention of its own between chunks
    assert answer["left"]["receipt"]["tokens"] > 0
    assert answer["checkpoint"] == "tiny"
    assert answer["probability"] is None
    assert any("100 % of the left text" in sentence for sentence in answer["evidence"])


def test_differences_are_given_on_request(library: Any) -> None:
    body = {"left": {"text": f"Rivers carve valleys over a thousand years. {LONG}"}}
    body["right"] = {"text": LONG.replace("colony 7 carries", "colony 7 burns")}
    assert library.post("/compare", json=body).json()["differences"] is None
    answer = library.post("/compare", json={**body, "differences": True}).json()["differences"]
    words = {
        side: " ".join(words["text"] for entry in answer[side] for words in entry["words"])
        for side in answer
    }
    assert words == {"left": "Rivers carve valleys over a thousand years carries", "right": "burns"}
    for side, entries in answer.items():
        text = body[side]["text"]
        assert all(text[entry["start"] : entry["end"]] == entry["text"] for entry in entries)
        assert all(entry["nearest"]["text"] for entry in entries)


def test_stored_documents_are_compared_without_encoding(stored: Any) -> None:
    before = blocks_encoded(stored)
    answer = stored.post("/compare", json={"left": {"id": "d1"}, "right": {"id": "d2"}}).json()
    assert blocks_encoded(stored) == before
    assert (answer["left"]["id"], answer["left"]["title"]) == ("d1", "Part 1")
    assert answer["left_coverage"] > 0.5
    same = stored.post("/compare", json={"left": {"id": "d1"}, "right": {"id": "d1"}}).json()
    assert same["relation"] == "identical"
    assert (same["left_coverage"], same["right_coverage"]) == (1.0, 1.0)


def test_a_text_is_called_by_its_title(stored: Any) -> None:
    body = {"left": {"text": LONG, "title": "A draft"}, "right": {"id": "d1"}}
    answer = stored.post("/compare", json=body).json()
    assert (answer["left"]["id"], answer["left"]["title"]) == (None, "A draft")
    page = stored.post("/compare", json=body, headers={"accept": "text/html"}).text
    assert "<title>A draft and Part 1 compared</title>" in page


def test_explaining_ten_matches_encodes_only_the_query(stored: Any) -> None:
    """The counter of encoded blocks rises equally with and without `explain`."""
    question = {"text": LONG[200:1100], "top_k": 10}
    before = blocks_encoded(stored)
    plain = stored.post("/match", json=question).json()
    of_query = blocks_encoded(stored) - before
    explained = stored.post("/match", json={**question, "explain": True}).json()
    assert blocks_encoded(stored) - before == 2 * of_query
    assert len(explained["matches"]) == 10
    assert [match["id"] for match in explained["matches"]] == [m["id"] for m in plain["matches"]]
    for match in explained["matches"]:
        explanation = match["explanation"]
        assert explanation["score"] == pytest.approx(match["score"], abs=1e-5)
        assert explanation["evidence"]
        for passage in explanation["passages"]:
            place = passage["left"]
            assert question["text"][place["start"] : place["end"]] == place["text"]
    assert explained["matches"][0]["explanation"]["left_coverage"] > 0.5
    assert "explain" in explained["timings"]
    assert all(match["explanation"] is None for match in plain["matches"])
    before = blocks_encoded(stored)
    stored.post("/match", json={"id": "d3", "explain": True})
    assert blocks_encoded(stored) == before


def test_aligned_blocks_are_the_sentences_that_match(library: Any) -> None:
    """A block that both texts have is the most similar pair, in its place on both sides."""
    text = "Rivers carve valleys. Ice does the same, but faster. " * 12
    copied = "The tribunal held that the assessment of the tax was void. " * 6
    texts = {"left": f"{text}{copied}", "right": f"{copied}{LONG}"}
    body = {side: {"text": text} for side, text in texts.items()}
    pairs = library.post("/compare", json=body).json()["aligned_blocks"]
    for pair in pairs:
        for side, whole in texts.items():
            place = pair[side]
            assert whole[place["start"] : place["end"]] == place["text"] != ""
    best = max(pairs, key=lambda pair: pair["similarity"])
    assert best["left"]["text"] == best["right"]["text"]
    assert best["left"]["text"] in copied


def test_as_many_aligned_blocks_as_passages_are_given(stored: Any) -> None:
    body = {"left": {"id": "d1"}, "right": {"id": "d2"}}
    everything = stored.post("/compare", json=body).json()
    assert len(everything["aligned_blocks"]) > 2
    for passages in (0, 2):
        answer = stored.post("/compare", json={**body, "passages": passages}).json()
        assert answer["aligned_blocks"] == everything["aligned_blocks"][:passages]
        assert answer["alignment_score"] == everything["alignment_score"]


def test_without_an_alignment_space_there_is_no_alignment(stored: Any) -> None:
    with closing(sqlite3.connect(stored.app.state.engine.default.data.store.path)) as store, store:
        store.execute("DELETE FROM alignment_spaces")
    body = {"left": {"id": "d1"}, "right": {"text": LONG}}
    answer = stored.post("/compare", json=body).json()
    assert (answer["alignment_score"], answer["aligned_blocks"]) == (None, None)
    assert answer["passages"]


def test_limits_of_an_explanation(stored: Any) -> None:
    question = {"id": "d1", "explain": {"matches": 2, "passages": 0}}
    for mode in ("semantic", "lexical", "hybrid"):
        matches = stored.post("/match", json={**question, "mode": mode}).json()["matches"]
        explanations = [match["explanation"] for match in matches]
        assert [explanation is not None for explanation in explanations] == [True, True] + [
            False
        ] * (len(explanations) - 2)
        assert explanations[0]["passages"] == []
        assert explanations[0]["passages_left_out"] >= 1
    many = {"queries": [{"id": "d1"}] * 11, "explain": True}
    response = stored.post("/match", json=many)
    assert response.json()["errors"] == [
        {
            "pointer": "#/explain",
            "detail": "asks for more than 100 explanations in one request",
            "limit": 100,
        }
    ]


def test_a_document_without_block_vectors_is_encoded(stored: Any) -> None:
    with closing(sqlite3.connect(stored.app.state.engine.default.data.store.path)) as store, store:
        store.execute("DELETE FROM block_vectors WHERE vector_id = 2")
    before = blocks_encoded(stored)
    answer = stored.post("/compare", json={"left": {"id": "d1"}, "right": {"id": "d0"}}).json()
    assert answer["left_coverage"] > 0.5
    assert blocks_encoded(stored) > before


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, ["#/left", "#/right"]),
        ({"left": {}, "right": {"text": "a"}}, ["#/left"]),
        ({"left": {"text": "a", "id": "b"}, "right": {"text": "a"}}, ["#/left"]),
        ({"left": {"id": "b", "title": "B"}, "right": {"text": "a"}}, ["#/left"]),
        ({"left": {"text": ""}, "right": {"text": ""}}, ["#/left/text", "#/right/text"]),
        ({"left": {"text": "a"}, "right": {"text": "a"}, "passages": -1}, ["#/passages"]),
        ({"left": {"text": "a"}, "right": {"text": "a"}, "top_k": 1}, ["#/top_k"]),
    ],
)
def test_a_field_that_is_wrong_is_named(library: Any, body: Any, expected: list[str]) -> None:
    assert refused(library, body) == expected


def test_an_unknown_id_and_a_long_text_are_named(library: Any) -> None:
    body = {"left": {"text": "a"}, "right": {"id": "unknown"}}
    assert refused(library, body, 404) == ["#/right/id"]
    long = {"left": {"text": "Ants dig. " * 2000}, "right": {"text": "a"}}
    assert refused(library, {**long, "strict": True}) == ["#/left/text"]
    receipt = library.post("/compare", json=long).json()["left"]["receipt"]
    assert receipt["blocks_left_out"] > 0


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/html", "text/html"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("text/*;q=0.5, application/json", "application/json"),
        ("application/*", "application/json"),
        ("application/json;q=0, */*", "text/html"),
    ],
)
def test_the_answer_has_the_media_type_that_is_wanted(
    library: Any, accept: str | None, kind: str
) -> None:
    body = {"left": {"text": LONG}, "right": {"id": "ants"}}
    headers = {} if accept is None else {"accept": accept}
    response = library.post("/compare", json=body, headers=headers)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(kind)
    if kind == "text/html":
        assert response.text.lower().startswith("<!doctype html>")
        assert "Sentence number 3" in response.text


@pytest.mark.parametrize("accept", ["image/png", "text/plain", "text/html;q=0"])
def test_another_media_type_is_refused(library: Any, accept: str) -> None:
    body = {"left": {"text": "Ants."}, "right": {"text": "Bees."}}
    response = library.post("/compare", json=body, headers={"accept": accept})
    problem(response, 406, "not-acceptable")
    assert "application/json or text/html" in response.json()["detail"]

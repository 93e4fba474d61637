"""POST /match as a client sees it."""

import json
from typing import Any

import pytest

from service.match.schemas import MatchResponse
from tests.kit.problems import problem

JSON = {"content-type": "application/json"}


def pointers(content: dict[str, Any]) -> list[str]:
    return [error["pointer"] for error in content["errors"]]


def test_the_title_of_a_text_counts(library: Any, texts: dict[str, str]) -> None:
    asked = {"text": texts["ants"], "mode": "lexical"}
    plain = library.post("/match", json=asked).json()["matches"]
    named = library.post("/match", json=asked | {"title": "Bees"}).json()["matches"]
    assert {match["id"]: match["score"] for match in plain}["bees"] < (
        {match["id"]: match["score"] for match in named}["bees"]
    )
    several = {"queries": [{"text": texts["ants"], "title": "Bees"}], "mode": "lexical"}
    assert library.post("/match", json=several).json()["results"][0]["matches"] == named
    content = problem(
        library.post("/match", json={"id": "ants", "title": "Ants"}), 422, "invalid-input"
    )
    assert "title or id, not both" in content["errors"][0]["detail"]


def test_a_text_is_matched(library: Any, texts: dict[str, str]) -> None:
    asked = {"text": texts["bees"], "title": "Bees", "top_k": 2}
    response = library.post("/match", json=asked)
    assert response.status_code == 200
    answer = response.json()
    assert [match["id"] for match in answer["matches"]] == ["bees", "ants"]
    best = answer["matches"][0]
    assert best.keys() == {
        "id", "score", "title", "metadata", "semantic_score", "vector_score", "alignment_score",
        "lexical_score", "terms", "probability", "false_positive_rate", "relevant", "explanation",
        "first_stage_score", "family", "collapsed", "like_scores", "unlike_scores",
    }  # fmt: skip
    assert best["title"] == "Bees"
    assert best["metadata"] == {"letters": 4}
    assert best["score"] == pytest.approx(1, abs=1e-4)
    receipt = answer["receipt"]
    assert receipt.keys() == {
        "tokens", "tokens_read", "blocks", "blocks_left_out", "tokens_encoded",
        "payload_characters", "common_text",
    }  # fmt: skip
    assert receipt["common_text"] == 0.0
    assert receipt["tokens"] == receipt["tokens_read"] == receipt["tokens_encoded"] > 0
    assert answer["timings"].keys() == {
        "tokenize", "queue", "encode", "lexical", "search", "align", "fetch",
    }  # fmt: skip
    assert all(milliseconds >= 0 for milliseconds in answer["timings"].values())
    assert answer["checkpoint"] == "tiny"
    assert answer["generation"] >= 0


def test_several_queries_have_several_results(library: Any) -> None:
    response = library.post(
        "/match", json={"queries": [{"id": "ants"}, {"text": "A tribunal."}], "top_k": 1}
    )
    assert response.json().keys() == {"results"}
    first, second = response.json()["results"]
    assert [match["id"] for match in first["matches"]] == ["bees"]
    assert len(second["matches"]) == 1
    (single,) = library.post("/match", json={"queries": [{"id": "ants"}], "top_k": 1}).json()[
        "results"
    ]
    assert single["matches"] == first["matches"]


@pytest.mark.parametrize(
    "asked",
    [
        {"id": "bees"},
        {"id": "bees", "mode": "semantic", "collapse": True},
        {"id": "bees", "explain": {"matches": 2}},
        {"like": [{"id": "bees"}, {"id": "ants"}], "unlike": [{"text": "A tribunal."}]},
    ],
    ids=["plain", "semantic", "explained", "examples"],
)
def test_an_answer_has_the_fields_of_its_model_and_no_others(
    library: Any, asked: dict[str, Any]
) -> None:
    answer = library.post("/match", json=asked).json()
    assert answer["matches"]
    assert MatchResponse.model_validate(answer).model_dump(mode="json") == answer


def test_min_score_and_the_default_top_k(library: Any) -> None:
    assert len(library.post("/match", json={"id": "ants"}).json()["matches"]) == 3
    answer = library.post("/match", json={"id": "ants", "min_score": 1}).json()
    assert answer["matches"] == []
    assert library.post("/match", json={"id": "ants", "min_score": -1.0}).status_code == 200


def test_strict_refuses_with_tokens_and_limit(library: Any) -> None:
    long = "Ants carry leaves to the colony every day. " * 200
    receipt = library.post("/match", json={"text": long}).json()["receipt"]
    assert receipt["blocks_left_out"] > 0
    response = library.post("/match", json={"text": long, "strict": True})
    content = problem(response, 422, "invalid-input")
    (error,) = content["errors"]
    assert error["pointer"] == "#/text"
    assert error["tokens"] == receipt["tokens"]
    assert error["limit"] == receipt["tokens_read"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "#"),
        ({"text": "a", "id": "b"}, "#"),
        ({"queries": []}, "#/queries"),
        ({"queries": [{"id": "ants"}] * 33}, "#/queries"),
        ({"queries": [{"text": "a"}, {"text": "a", "id": "b"}]}, "#/queries/1"),
        ({"text": "a", "top_k": 0}, "#/top_k"),
        ({"text": "a", "top_k": 1001}, "#/top_k"),
        ({"text": "a", "top_k": True}, "#/top_k"),
        ({"text": "a", "min_score": 1.5}, "#/min_score"),
        ({"text": "a", "explain": {"matches": 0}}, "#/explain/matches"),
        ({"text": "a", "explain": {"matches": 101}, "top_k": 200}, "#/explain"),
        ({"text": "a", "align": 1}, "#/align"),
        ({"text": "a", "align": {"candidates": 1001}}, "#/align/candidates"),
        ({"text": "a", "align": {"budget_ms": -1}}, "#/align/budget_ms"),
        ({"text": None}, "#"),
        ({"id": "ants", "unknown": None}, "#/unknown"),
        ({"id": "ants", "top_k": 3.5}, "#/top_k"),
        ({"text": " \n\t"}, "#/text"),
        ({"text": "\x00"}, "#/text"),
        ({"id": "x" * 513}, "#/id"),
        ({"text": "a", "topk": 3}, "#/topk"),
        ({"text": "a", "a/b~c ü": 3}, "#/a~1b~0c%20%C3%BC"),
        ([{"text": "a"}], "#"),
    ],
)
def test_a_field_that_is_wrong_is_named(library: Any, body: Any, expected: str) -> None:
    response = library.post("/match", content=json.dumps(body), headers=JSON)
    assert pointers(problem(response, 422, "invalid-input")) == [expected]


def test_several_wrong_fields_are_all_named_with_their_limits(library: Any) -> None:
    wrong = {"top_k": 0, "min_score": 7, "min_probability": 2, "max_false_positive_rate": -1}
    content = problem(
        library.post("/match", json={"text": "a", "x": 1, **wrong}), 422, "invalid-input"
    )
    limits = {error["pointer"][2:]: error.get("limit") for error in content["errors"]}
    assert limits == {**dict.fromkeys(wrong, 1), "max_false_positive_rate": 0, "x": None}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(library: Any, number: str) -> None:
    response = library.post(
        "/match", content=f'{{"id": "ants", "min_score": {number}}}', headers=JSON
    )
    assert pointers(problem(response, 422, "invalid-input")) == ["#/min_score"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"text": "a"', "character 12"),
        (b"{'text': 'a'}", "character 1"),
        (b"not json", "character 0"),
        (b'{"text": "a\nb"}', "character 11"),
        (b'{"text": "\xff\xfe"}', "not UTF-8"),
        (b'{"text": "\xc3"}', "not UTF-8"),
        (b"[" * 100_000, "too deeply"),
        (b'{"text": "a", "top_k": ' + b"9" * 5000 + b"}", "could not be parsed"),
    ],
)
def test_a_body_that_is_not_json_is_refused(library: Any, body: bytes, detail: str) -> None:
    content = problem(library.post("/match", content=body, headers=JSON), 400, "malformed-body")
    assert detail in content["detail"]


def test_a_pair_of_surrogates_is_a_character(library: Any) -> None:
    response = library.post("/match", content='{"text": "\\ud83d\\ude00 ants"}', headers=JSON)
    assert response.status_code == 200


def test_no_body_at_all_is_refused(library: Any) -> None:
    content = problem(library.post("/match", headers=JSON), 422, "invalid-input")
    assert pointers(content) == ["#"]


def test_an_unknown_id_is_not_found(library: Any) -> None:
    content = problem(library.post("/match", json={"id": "wasps"}), 404, "document-not-found")
    assert "'wasps'" in content["detail"]
    response = library.post("/match", json={"queries": [{"id": "ants"}, {"id": "wasps"}]})
    assert pointers(problem(response, 404, "document-not-found")) == ["#/queries/1/id"]


def test_no_error_repeats_the_text(library: Any) -> None:
    secret = "the password is swordfish"
    for body in (
        {"text": secret, "top_k": 0},
        {"text": [secret]},
        {"text": "a", "min_score": secret},
        {"text": secret * 2000, "strict": True},
    ):
        response = library.post("/match", json=body)
        assert response.status_code == 422
        assert "swordfish" not in response.text
    assert "swordfish" not in library.post("/match", content=secret, headers=JSON).text


@pytest.mark.parametrize("field", ["text", "id"])
def test_a_lone_surrogate_is_refused(library: Any, field: str) -> None:
    body = f'{{"{field}": "good \\ud800 bad"}}'
    content = problem(library.post("/match", content=body, headers=JSON), 422, "invalid-input")
    assert pointers(content) == [f"#/{field}"]
    assert "surrogate" in content["errors"][0]["detail"]


def test_null_is_not_given_and_3_0_is_an_integer(library: Any) -> None:
    body = {"id": "ants", "text": None, "top_k": 1.0, "mode": None, "explain": None, "filter": None}
    answer = library.post("/match", json=body)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["matches"]) == 1

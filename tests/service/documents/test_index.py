"""POST /index as a client sees it."""

import json
from typing import Any

import pytest

from tests.kit.problems import problem

JSON = {"content-type": "application/json"}


def refused(client: Any, body: Any) -> list[dict[str, Any]]:
    """Return the errors of a body that is refused."""
    content = body if isinstance(body, str) else json.dumps(body)
    response = client.post("/index", content=content, headers=JSON)
    problem(response, 422, "invalid-input")
    return response.json()["errors"]


def document(**changed: Any) -> dict[str, Any]:
    return {"id": "a", "text": "Ants dig.", **changed}


def test_documents_are_stored_and_found_by_the_next_match(client: Any) -> None:
    response = client.post(
        "/index",
        json={"documents": [document(), document(id="b", text="Bees fly.", title="Bees")]},
    )
    assert response.status_code == 200
    answer = response.json()
    assert answer["indexed"] == 2
    assert [(item["id"], item["unchanged"]) for item in answer["documents"]] == [
        ("a", False),
        ("b", False),
    ]
    assert answer["documents"][0]["receipt"]["tokens"] == 5
    assert answer["timings"].keys() == {"tokenize", "queue", "encode", "store"}
    assert answer["checkpoint"] == "tiny"
    (best,) = client.post("/match", json={"text": "Bees fly.", "top_k": 1}).json()["matches"]
    assert (best["id"], best["title"], best["metadata"]) == ("b", "Bees", {})


def test_metadata_of_any_json_comes_back_as_it_was(client: Any) -> None:
    metadata = {
        "year": 2021,
        "ratio": 0.1,
        "big": 2**60,
        "nothing": None,
        "yes": True,
        "list": [1, "two", {"three": [3.5]}],
        "naïve 🐜": "ö\u0000\u2028",
        "": "",
    }
    client.post("/index", json={"documents": [document(metadata=metadata)]})
    assert client.get("/documents/a").json()["metadata"] == metadata
    (match,) = client.post("/match", json={"text": "Ants."}).json()["matches"]
    assert match["metadata"] == metadata


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "#/documents"),
        ({"documents": []}, "#/documents"),
        ({"documents": [document(), {"id": "b"}]}, "#/documents/1/text"),
        ({"documents": [document(id="x" * 513)]}, "#/documents/0/id"),
        ({"documents": [document(id="a\nb")]}, "#/documents/0/id"),
        ({"documents": [document(text=" \n ")]}, "#/documents/0/text"),
        ({"documents": [document(text="\x00")]}, "#/documents/0/text"),
        ({"documents": [document(text=None)]}, "#/documents/0/text"),
        ({"documents": [document(title="x" * 4097)]}, "#/documents/0/title"),
        ({"documents": [document(metadata={"x": "y" * 65536})]}, "#/documents/0/metadata"),
        ({"documents": [document(body="a")]}, "#/documents/0/body"),
        ({"documents": [document(), document(text="b")]}, "#/documents/1/id"),
        ({"documents": [document()], "upsert": True}, "#/upsert"),
    ],
)
def test_a_field_that_is_wrong_is_named_and_nothing_is_stored(
    empty: Any, body: Any, expected: str
) -> None:
    assert [error["pointer"] for error in refused(empty, body)] == [expected]
    assert empty.get("/readyz").json()["documents"] == 0


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", '[1, {"x": 1e999}]', '"\\ud800"', '[["\\udfff"]]', '{"\\ud800": 1}'],
)
def test_metadata_that_json_cannot_hold_is_refused(empty: Any, value: str) -> None:
    body = f'{{"documents": [{{"id": "a", "text": "b", "metadata": {{"x": {value}}}}}]}}'
    (error,) = refused(empty, body)
    assert error["pointer"].startswith("#/documents/0/metadata")


def nested(levels: int) -> str:
    """Return a document whose metadata has so many levels."""
    lists = "[" * (levels - 1) + "]" * (levels - 1)
    return f'{{"id": "a", "text": "b", "metadata": {{"x": {lists}}}}}'


@pytest.mark.parametrize("levels", [65, 254, 700])
def test_metadata_nested_too_deeply_is_refused(empty: Any, levels: int) -> None:
    (error,) = refused(empty, f'{{"documents": [{nested(levels)}]}}')
    assert error["pointer"] == "#/documents/0/metadata"
    assert error["limit"] == 64


def test_metadata_of_the_greatest_depth_is_returned(client: Any) -> None:
    body = f'{{"documents": [{nested(64)}]}}'
    assert client.post("/index", content=body, headers=JSON).status_code == 200
    metadata = json.loads(nested(64))["metadata"]
    assert client.get("/documents").json()["documents"][0]["metadata"] == metadata
    matches = client.post("/match", json={"text": "b"}).json()["matches"]
    assert matches[0]["metadata"] == metadata


def test_a_hundred_errors_are_enough(empty: Any) -> None:
    errors = refused(empty, {"documents": [{"id": 1} for _ in range(200)]})
    assert len(errors) == 100


def test_too_many_documents_are_refused_with_the_limit(client: Any) -> None:
    documents = [document(id=str(number)) for number in range(257)]
    (error,) = refused(client, {"documents": documents})
    assert (error["pointer"], error["limit"]) == ("#/documents", 256)
    assert client.post("/index", json={"documents": documents[1:]}).json()["indexed"] == 256


def test_a_text_over_the_limit_is_refused_with_the_limit(make_client: Any) -> None:
    client = make_client(max_text_characters=50)
    (error,) = refused(client, {"documents": [document(), document(id="b", text="é" * 51)]})
    assert (error["pointer"], error["limit"]) == ("#/documents/1/text", 50)
    assert client.get("/readyz").json()["documents"] == 0


def test_strict_refuses_what_would_be_cut(client: Any) -> None:
    long = "Ants carry leaves to the colony every day. " * 200
    (error,) = refused(client, {"documents": [document(text=long)], "strict": True})
    assert error["pointer"] == "#/documents/0/text"
    assert error["tokens"] > error["limit"]
    response = client.post("/index", json={"documents": [document(text=long)]})
    assert response.json()["documents"][0]["receipt"]["blocks_left_out"] > 0


def test_more_tokens_than_the_queue_holds_are_413_with_the_limit(client: Any) -> None:
    long = "Ants carry leaves to the colony every day. " * 200
    documents = [document(id=str(number), text=long) for number in range(8)]
    response = client.post("/index", json={"documents": documents})
    assert response.status_code == 413
    content = response.json()
    assert content["type"] == "/problems/request-too-large"
    assert content["tokens"] > content["limit"] == 4096


@pytest.mark.parametrize("field", ["id", "title", "text"])
def test_a_lone_surrogate_is_refused(empty: Any, field: str) -> None:
    body = json.dumps({"documents": [document(**{field: "x\ud800y"})]})
    (error,) = refused(empty, body)
    assert error["pointer"] == f"#/documents/0/{field}"
    assert "surrogate" in error["detail"]

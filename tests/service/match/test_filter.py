"""Filters and excluded ids in POST /match, as a client sees them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

TEXT = "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home."
SHARED = [
    "Bees live in hives.",
    "They carry nectar and pollen home.",
]  # a word of all tells nothing
MODES = ["semantic", "lexical", "hybrid"]
COUNT = 40
DEEP: Any = {"field": "number", "exists": True}
for _ in range(8):
    DEEP = {"not": DEEP}


@pytest.fixture(scope="module")
def shelf(make_shared_client: Callable[[], Any]) -> Any:
    """Return a client of an application with many documents; do not change what it holds."""
    client = make_shared_client()
    documents = [
        {
            "id": f"d{number}",
            "text": f"{SHARED[number % 2]} Number {number} has {number * 7} workers.",
            "metadata": {
                "number": number,
                "even": number % 2 == 0,
                "tags": ["low"] if number < 10 else ["high", "more"],
                "author": {"name": f"A{number % 3}"},
            },
        }
        for number in range(COUNT)
    ]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def ids(response: Any) -> list[str]:
    assert response.status_code == 200, response.text
    return [match["id"] for match in response.json()["matches"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ({"field": "number", "in": [1, 2.0, True, "3"]}, {1, 2}),
        ({"field": "number", "range": {"gte": 3, "lt": 6}}, {3, 4, 5}),
        ({"field": "/author/name", "range": {"lte": "A0"}}, set(range(0, COUNT, 3))),
        ({"field": "missing", "exists": False}, set(range(COUNT))),
        (
            {
                "and": [
                    {"field": "even", "equal": True},
                    {"or": [{"field": "tags", "in": ["low"]}, {"field": "number", "equal": 20}]},
                    {"not": {"field": "number", "equal": 4}},
                ]
            },
            {0, 2, 6, 8, 20},
        ),
    ],
)
def test_only_what_the_filter_holds_for_and_all_of_it(
    shelf: Any, mode: str, where: Any, numbers: set[int]
) -> None:
    wanted = {"text": TEXT, "mode": mode, "top_k": COUNT, "filter": where}
    assert set(ids(shelf.post("/match", json=wanted))) == {f"d{number}" for number in numbers}
    some = ids(shelf.post("/match", json={**wanted, "top_k": 2}))
    assert len(some) == min(2, len(numbers))


@pytest.mark.parametrize("mode", MODES)
def test_excluded_ids_are_not_given(shelf: Any, mode: str) -> None:
    body = {"text": TEXT, "mode": mode, "top_k": 5}
    first = ids(shelf.post("/match", json=body))
    others = ids(shelf.post("/match", json={**body, "exclude": [*first[:3], "unknown"]}))
    assert others[:2] == first[3:]
    assert len(others) == 5
    where = {"field": "number", "range": {"lt": 4}}
    kept = ids(shelf.post("/match", json={**body, "exclude": ["d1", "d30"], "filter": where}))
    assert set(kept) == {"d0", "d2", "d3"}
    assert ids(shelf.post("/match", json={**body, "exclude": []})) == first


def test_a_filter_holds_for_every_query(shelf: Any) -> None:
    body = {"queries": [{"id": "d3"}, {"text": TEXT}], "top_k": 9}
    where = {"field": "number", "range": {"lt": 5}}
    results = shelf.post("/match", json={**body, "filter": where}).json()["results"]
    found = [{match["id"] for match in result["matches"]} for result in results]
    assert found == [{"d0", "d1", "d2", "d4"}, {"d0", "d1", "d2", "d3", "d4"}]
    assert all(result["timings"]["filter"] >= 0 for result in results)
    assert "filter" not in shelf.post("/match", json={"text": TEXT}).json()["timings"]


@pytest.mark.parametrize(
    ("where", "pointer", "detail", "limit"),
    [
        ({}, "#/filter", "give exactly one of equal, in, range", None),
        ({"field": "a"}, "#/filter", "give exactly one", None),
        ({"equal": 1}, "#/filter", "needs a field", None),
        ({"field": "a", "and": [{"field": "b", "exists": True}]}, "#/filter", "no field", None),
        ({"field": "a", "equal": None}, "#/filter/equal", "must not be null", None),
        ({"field": "a", "equal": [1]}, "#/filter/equal", "a string, a number, true or false", None),
        ({"field": "a", "equal": 10**30}, "#/filter/equal", "too large", None),
        ({"field": "a", "equal": "x" * 513}, "#/filter/equal", "longer than 512", 512),
        ({"field": "a", "equal": "\ud800"}, "#/filter/equal", "lone surrogate", None),
        ({"field": "a", "range": {"lt": "\ud800"}}, "#/filter/range/lt", "lone surrogate", None),
        ({"field": "\ud800", "equal": 1}, "#/filter/field", "lone surrogate", None),
        ({"field": "a", "in": []}, "#/filter/in", "at least 1", 1),
        ({"field": "a", "in": [1, [2]]}, "#/filter/in/1", "a string, a number", None),
        ({"field": "a", "in": list(range(1001))}, "#/filter", "more than 1000 values", 1000),
        ({"field": "a", "range": {}}, "#/filter/range", "needs a bound", None),
        ({"field": "a", "range": {"gt": True}}, "#/filter/range/gt", "a string or a number", None),
        ({"field": "a", "range": {"gt": 1, "lt": "b"}}, "#/filter/range", "different types", None),
        ({"field": "a", "range": {"gt": 1, "gte": 1}}, "#/filter/range", "not both", None),
        ({"field": "f" * 513, "equal": 1}, "#/filter/field", "longer than 512", 512),
        ({"field": "/~2", "equal": 1}, "#/filter/field", "not a JSON Pointer", None),
        ({"field": "/a" * 9, "equal": 1}, "#/filter/field", "more than 8 levels", 8),
        ({"or": [{"not": {"fild": 1}}]}, "#/filter/or/0/not/fild", "not permitted", None),
        (DEEP, "#/filter", "more than 8 levels", 8),
        ({"or": [{"field": "a", "exists": True}] * 64}, "#/filter", "than 64 conditions", 64),
    ],
)
def test_a_filter_that_is_refused_is_named(
    shelf: Any, where: Any, pointer: str, detail: str, limit: int | None
) -> None:
    body = json.dumps({"text": TEXT, "filter": where})
    response = shelf.post("/match", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    error = response.json()["errors"][0]
    assert error["pointer"] == pointer
    assert detail in error["detail"]
    assert error.get("limit") == limit


def test_a_filter_deeper_than_any_stack_does_no_harm(shelf: Any) -> None:
    body = '{"text": "a", "filter": ' + '{"not": ' * 900 + "{}" + "}" * 901
    response = shelf.post("/match", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert response.json()["errors"][0]["limit"] == 8


def test_the_limits_themselves_are_allowed(shelf: Any) -> None:
    conditions = [{"field": "number", "equal": number} for number in range(63)]
    assert len(ids(shelf.post("/match", json={"text": TEXT, "filter": {"or": conditions}}))) == 10
    values = {"field": "number", "in": [*range(5), *(f"v{n}" for n in range(995))]}
    assert len(ids(shelf.post("/match", json={"text": TEXT, "filter": values}))) == 5
    assert len(ids(shelf.post("/match", json={"text": TEXT, "filter": DEEP["not"]}))) == 0


def test_too_many_excluded_ids_are_refused(shelf: Any) -> None:
    body = {"text": TEXT, "exclude": [f"d{number}" for number in range(1001)]}
    (error,) = shelf.post("/match", json=body).json()["errors"]
    assert (error["pointer"], error["limit"]) == ("#/exclude", 1000)

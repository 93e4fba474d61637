"""GET /map as a client sees it."""

from typing import Any

from service.map.logic import SIDE
from tests.kit.problems import problem

EMPTY = {
    **{"documents": 0, "ids": [], "titles": [], "x": [], "y": [], "group_of": [], "groups": []},
    **{"values": None, "value_of": None},
}


def test_every_document_is_a_point(filled: Any) -> None:
    found = filled.get("/map").json()
    assert found["documents"] == 4
    assert len(set(found["ids"])) == 4
    assert found["titles"][found["ids"].index("bees")] == "Bees"
    points = list(zip(found["x"], found["y"], strict=True))
    assert len(set(points)) == 4
    assert all(0 <= number <= SIDE for point in points for number in point)
    [group] = found["groups"]
    assert found["group_of"] == [0, 0, 0, 0]
    assert (group["documents"], len(group["words"])) == (4, 3)
    assert found["values"] is found["value_of"] is None


def test_it_follows_the_documents(empty: Any) -> None:
    assert empty.get("/map").json() == EMPTY
    documents = [{"id": f"d{n}", "text": f"Text {n} on ants.", "title": f"T{n}"} for n in range(3)]
    empty.post("/index", json={"documents": documents})
    assert sorted(empty.get("/map").json()["ids"]) == ["d0", "d1", "d2"]
    empty.delete("/documents/d1")
    empty.post("/index", json={"documents": [documents[0] | {"title": "Renamed"}]})
    found = empty.get("/map").json()
    assert dict(zip(found["ids"], found["titles"], strict=True)) == {"d0": "Renamed", "d2": "T2"}
    assert filled_values(empty, "year") == ([], {"d0": None, "d2": None})


def filled_values(client: Any, field: str) -> tuple[list[str], dict[str, str | None]]:
    found = client.get("/map", params={"field": field}).json()
    rows = dict(zip(found["ids"], found["value_of"], strict=True))
    return found["values"], {
        name: None if row is None else found["values"][row] for name, row in rows.items()
    }


def test_values_of_a_field_are_the_most_frequent(empty: Any) -> None:
    years = [1990, 1990, 1991, *range(2000, 2011), [1992, 1993], None, True, {"a": 1}]
    documents = [
        {"id": f"d{n}", "text": f"Text {n}.", "metadata": {"year": year}}
        for n, year in enumerate(years)
    ]
    empty.post("/index", json={"documents": documents})
    values, of = filled_values(empty, "year")
    assert len(values) == 12
    assert (of["d0"], of["d1"], of["d2"]) == ("1990", "1990", "1991")
    assert of["d17"] is None
    assert of["d15"] is None


def test_a_field_has_a_name(filled: Any) -> None:
    for name in ("", "x" * 201):
        refused = problem(filled.get("/map", params={"field": name}), 422, "invalid-input")
        assert refused["errors"][0]["parameter"] == "field"

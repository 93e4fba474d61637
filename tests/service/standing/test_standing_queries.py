"""/standing-queries: made, listed, removed, and the events of new documents that match."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from index.followers import follow_all
from tests.kit.calibrations import MODES, calibrated
from tests.kit.problems import problem
from tests.kit.service_fixtures import fill
from tests.kit.waiting import wait_until

QUERY = {"text": "Bees live in hives. Each hive has a queen.", "min_score": -1}
NEW = {
    "wasps": "Wasps live in nests of paper. Each nest has a queen. Workers carry prey home.",
    "court": "The court held that the appeal was void. The costs were allowed.",
    "hives": "Bees live in hives. Each hive has a queen. Workers carry nectar home.",
}


def make(client: Any, **body: Any) -> dict[str, Any]:
    response = client.post("/standing-queries", json=body)
    assert response.status_code == 201, response.text
    made = response.json()
    assert response.headers["location"] == f"/standing-queries/{made['id']}"
    return made


def put(client: Any, documents: dict[str, str], **fields: Any) -> None:
    body = [{"id": name, "text": text, **fields} for name, text in documents.items()]
    assert client.post("/index", json={"documents": body}).status_code == 200


def settled(client: Any) -> None:
    """Wait until what is stored was compared."""
    standing = client.app.state.engine.default.standing
    wait_until(lambda: not standing.lag_seconds, "the documents were not compared")


def events(client: Any, query_id: str | None = None, parameters: str = "") -> list[dict[str, Any]]:
    settled(client)
    below = "" if query_id is None else f"/{query_id}"
    response = client.get(f"/standing-queries{below}/events{parameters}")
    assert response.status_code == 200, response.text
    return response.json()["events"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of", ["text", "document"])
def test_a_new_document_has_the_score_of_match(
    filled: Any, monkeypatch: pytest.MonkeyPatch, mode: str, of: str
) -> None:
    """Also where it is found in the store before what follows from it is there."""
    asked = {"id": "bees"} if of == "document" else {"text": QUERY["text"], "title": "Bees"}
    made = make(filled, **asked, mode=mode, min_score=-1)

    def follow_late(*given: Any) -> None:
        filled.app.state.engine.default.standing.wake()
        time.sleep(0.1)
        follow_all(*given)

    monkeypatch.setattr("index.store.document_store.follow_all", follow_late)
    put(filled, NEW, title="New")
    found = {event["document"]: event for event in events(filled, made["id"])}
    body = {**asked, "mode": mode, "top_k": 50}
    matches = filled.post("/match", json=body).json()["matches"]
    expected = {hit["id"]: hit for hit in matches if hit["id"] in NEW}
    assert found.keys() == expected.keys() != set()
    for name, first in found.items():
        assert first["score"] == pytest.approx(expected[name]["score"], abs=1e-5)
        assert (first["query"], first["title"], first["scored_as"]) == (made["id"], "New", mode)


@pytest.fixture(scope="module")
def calibrated_client(
    make_shared_client: Callable[..., Any],
    tiny_checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """A client of an application that holds TEXTS, with calibrations of every mode."""
    checkpoint, data = calibrated(tiny_checkpoint, tmp_path_factory.mktemp("calibrated"))
    return fill(make_shared_client(encoder=checkpoint, data=data))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("measure", ["score", "probability", "false_positive_rate"])
def test_only_what_is_inside_the_bound_is_an_event(
    calibrated_client: Any, mode: str, measure: str
) -> None:
    client = calibrated_client
    bound = "max_false_positive_rate" if measure[0] == "f" else f"min_{measure}"
    put(client, NEW)
    match = {"text": QUERY["text"], "mode": mode, "top_k": 50}
    first = client.post("/match", json=match).json()["matches"]
    best = next(entry for entry in first if entry["id"] in NEW)
    made = make(client, text=QUERY["text"], mode=mode, **{bound: best[measure]})
    assert made[bound] == best[measure]
    suffix = f" again, {mode} {measure}"
    put(client, {f"{name}{suffix}": f"{text} It is new{suffix}." for name, text in NEW.items()})
    again = client.post("/match", json={**match, bound: best[measure]}).json()["matches"]
    expected = {item["id"]: item for item in again if item["id"].endswith(suffix)}
    found = {event["document"]: event for event in events(client, made["id"])}
    assert found.keys() == expected.keys()
    assert len(found) < len(NEW)
    for name, entry in found.items():
        for value in ("score", "probability", "false_positive_rate"):
            assert entry[value] == pytest.approx(expected[name][value], abs=1e-5)


def test_without_a_bound_the_calibration_chooses_one(calibrated_client: Any) -> None:
    made = make(calibrated_client, text="Bees.")
    assert made["max_false_positive_rate"] == 0.001
    assert (made["min_score"], made["min_probability"]) == (None, None)


def test_events_are_of_new_texts_only_and_each_once(filled: Any) -> None:
    made = make(filled, **QUERY)
    put(filled, {"a": "Ants find paths."})
    settled(filled)  # what is replaced before it was compared is no event
    put(filled, {"a": "Ants find paths."}, title="A title")
    put(filled, {"a": "Ants find short paths."})
    assert [(event["document"], event["title"]) for event in events(filled, made["id"])] == [
        ("a", ""),
        ("a", ""),
    ]
    filled.delete("/documents/a")
    put(filled, {"a": "Ants find paths."})
    assert len(events(filled, made["id"])) == 3
    later = make(filled, **QUERY)
    assert events(filled, later["id"]) == []


def test_a_filter_decides_by_the_metadata(filled: Any) -> None:
    where = {
        "and": [
            {"field": "/year", "range": {"gte": 2026}},
            {"not": {"field": "/x", "exists": True}},
        ]
    }
    made = make(filled, **QUERY, filter=where)
    assert made["filter"] == where
    put(filled, {"old": "Bees."}, metadata={"year": 2025})
    put(filled, {"new": "Bees fly."}, metadata={"year": 2026})
    put(filled, {"other": "Bees sting."}, metadata={"year": 2026, "x": 1})
    assert [event["document"] for event in events(filled, made["id"])] == ["new"]


def test_a_document_is_compared_as_of_now_not_with_itself(filled: Any) -> None:
    made = make(filled, id="bees", min_score=-1, mode="semantic")
    put(filled, {"bees": "Rivers carve valleys over thousands of years."})
    settled(filled)
    put(filled, {"copy": "Rivers carve valleys over thousands of years."})
    (event,) = events(filled, made["id"])
    assert (event["document"], event["score"]) == ("copy", pytest.approx(1.0, abs=1e-3))
    filled.delete("/documents/bees")
    put(filled, {"while it is away": "Rivers carve valleys."})
    settled(filled)
    detail = filled.get(f"/standing-queries/{made['id']}").json()["detail"]
    assert detail == "its document was deleted"
    put(filled, {"bees": "Rivers carve valleys."})
    assert [item["document"] for item in events(filled, made["id"])] == ["copy", "while it is away"]
    assert filled.get(f"/standing-queries/{made['id']}").json()["detail"] is None


def test_queries_are_listed_in_pages_and_removed(client: Any) -> None:
    made = [make(client, text=f"Bees {number}.", min_score=0.1, title="T") for number in range(3)]
    page = client.get("/standing-queries?limit=2").json()
    rest = client.get(f"/standing-queries?limit=2&cursor={page['next_cursor']}").json()
    assert page["queries"] + rest["queries"] == made
    assert rest["next_cursor"] is None
    path = f"/standing-queries/{made[1]['id']}"
    put(client, {"a": "Bees."})
    assert events(client, made[1]["id"])
    assert client.delete(path).status_code == 204
    for method, below in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        gone = client.request(method, f"{path}{below}")
        problem(gone, 404, "standing-query-not-found")
    assert {event["query"] for event in events(client)} == {made[0]["id"], made[2]["id"]}


def test_events_come_in_pages(client: Any) -> None:
    made = [make(client, **QUERY) for _ in range(2)]
    put(client, {str(number): f"Bee number {number}." for number in range(3)})
    every = events(client)
    assert len(every) == 6
    assert [query["number"] for query in every] == sorted({query["number"] for query in every})
    first = client.get("/standing-queries/events?limit=4").json()
    assert first == {"events": every[:4], "last": every[3]["number"]}
    assert events(client, parameters=f"?after={first['last']}") == every[4:]
    own = [query for query in every if query["query"] == made[1]["id"]]
    assert events(client, made[1]["id"]) == own
    assert events(client, made[1]["id"], f"?after={own[0]['number']}") == own[1:]
    end = client.get("/standing-queries/events?after=999").json()
    assert end == {"events": [], "last": 999}


def test_no_more_queries_than_the_limit(make_client: Callable[..., Any]) -> None:
    client = make_client(max_standing_queries=1)
    make(client, **QUERY)
    refused = client.post("/standing-queries", json=QUERY)
    problem(refused, 409, "too-many-standing-queries")
    assert "the limit is 1 queries (max_standing_queries)" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"min_score": 0}, "#"),
        ({"text": "Bees."}, "#/max_false_positive_rate"),
        ({"text": "a", "id": "b", "min_score": 0}, "#"),
        ({"text": " ", "min_score": 0}, "#/text"),
        ({"id": "nobody", "min_score": 0}, "#/id"),
        ({"text": "Bees.", "min_score": 2}, "#/min_score"),
        ({"text": "Bees.", "max_false_positive_rate": 0.1}, "#/max_false_positive_rate"),
        ({"text": "Bees.", "min_score": 0, "mode": "all"}, "#/mode"),
        ({"text": "Bees.", "min_score": 0, "filter": {"field": "a"}}, "#/filter"),
    ],
)
def test_what_is_wrong_is_named(empty: Any, body: dict[str, Any], pointer: str) -> None:
    response = empty.post("/standing-queries", json=body)
    assert response.status_code == (404 if pointer == "#/id" else 422)
    assert response.json()["errors"][0]["pointer"] == pointer
    assert empty.get("/standing-queries").json()["queries"] == []


def test_a_query_that_cannot_be_read_keeps_no_other_one_waiting(client: Any) -> None:
    broken, sound = make(client, **QUERY), make(client, **QUERY)
    path = client.app.state.engine.settings.data / "state.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        damage = "UPDATE standing SET vectors = substr(vectors, 1, 99) WHERE id = ?"
        connection.execute(damage, (broken["id"].encode(),))
        connection.commit()
    put(client, {"a": "Bees."})
    assert [event["document"] for event in events(client, sound["id"])] == ["a"]
    detail = client.get(f"/standing-queries/{broken['id']}").json()["detail"]
    assert detail == "it cannot be read: make it again"

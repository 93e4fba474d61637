"""POST, GET and DELETE /feedback as a client sees them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.engine import unready_because
from service.startup import open_engine
from tests.kit.service_fixtures import fill

EXPORT = {"accept": "application/x-ndjson"}
OF_TEXT = {"text": "Wasps live in paper nests.", "title": "Wasps"}


def give(client: Any, query: object, match: str, grade: int = 1) -> Any:
    body = {"query": query, "match": match, "grade": grade}
    return client.post("/feedback", json=body)


def listed(client: Any) -> list[dict[str, Any]]:
    answer = client.get("/feedback")
    assert answer.status_code == 200, answer.text
    page: list[dict[str, Any]] = answer.json()["feedback"]
    return page


def exported(client: Any) -> list[dict[str, Any]]:
    answer = client.get("/feedback", headers=EXPORT)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def counts(client: Any) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    start = 'longmatch_feedback{collection="default",verdict="'
    found = (line.removeprefix(start).split('"} ') for line in lines if line.startswith(start))
    return {verdict: float(value) for verdict, value in found}


def test_a_verdict_is_kept_and_a_later_one_replaces_it(filled: Any) -> None:
    assert counts(filled) == {"relevant": 0, "not_relevant": 0}
    first = give(filled, {"id": "ants"}, "bees", 1)
    assert first.status_code == 200, first.text
    verdict = first.json()
    assert verdict["query"] == {"id": "ants", "title": ""}
    assert (verdict["match"], verdict["grade"]) == ("bees", 1)
    assert give(filled, {"id": "ants"}, "bees", 1).json() == verdict  # idempotent
    assert counts(filled) == {"relevant": 1, "not_relevant": 0}
    later = give(filled, {"id": "ants"}, "bees", 0).json()
    assert (later["id"], later["grade"]) == (verdict["id"], 0)
    assert later["created"] == verdict["created"]
    assert listed(filled) == [later]
    assert counts(filled) == {"relevant": 0, "not_relevant": 1}
    give(filled, {"id": "bees"}, "ants", 3)  # the other way round is another one
    assert len(listed(filled)) == 2


def test_texts_and_titles_of_queries_are_only_in_the_export(filled: Any) -> None:
    ids = {give(filled, OF_TEXT, match).json()["id"] for match in ("ants", "bees")}
    ids.add(give(filled, {"text": OF_TEXT["text"]}, "ants").json()["id"])
    assert len(ids) == 3
    assert OF_TEXT["text"] not in filled.get("/feedback").text
    lines = exported(filled)
    assert [line["id"] for line in lines] == sorted(ids)
    assert sum(line["query"] == OF_TEXT for line in lines) == 2
    given = {name: lines[0][name] for name in ("query", "match", "grade")}
    assert filled.post("/feedback", json=given).json()["id"] == lines[0]["id"]  # can be given again


def test_pages_have_every_verdict_once(filled: Any, texts: dict[str, str]) -> None:
    for query in texts:
        for match in texts:
            if query != match:
                give(filled, {"id": query}, match)
    seen, cursor = [], None
    while True:
        params = {"limit": 5} | ({"cursor": cursor} if cursor else {})
        page = filled.get("/feedback", params=params).json()
        seen += [item["id"] for item in page["feedback"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 12
    assert seen == [item["id"] for item in exported(filled)]


@pytest.fixture(scope="module")
def short(make_shared_client: Callable[..., Any]) -> Any:
    """Return a client of a service that takes short texts; give it no feedback."""
    return fill(make_shared_client(max_text_characters=200))


UNKNOWN, INVALID = (404, "/problems/document-not-found"), (422, "/problems/invalid-input")


@pytest.mark.parametrize(
    ("change", "pointer", "problem"),
    [
        ({"query": {"id": "nobody"}}, "#/query/id", UNKNOWN),
        ({"match": "nobody"}, "#/match", UNKNOWN),
        ({"grade": 4}, "#/grade", INVALID),
        ({"match": "ants"}, "#/match", INVALID),
        ({"query": {"text": "\n \t"}}, "#/query/text", INVALID),
        ({"query": {"text": "x" * 201}}, "#/query/text", INVALID),
        ({"query": {"id": "ants", "text": "x"}}, "#/query", INVALID),
        ({"query": {}}, "#/query", INVALID),
        ({"query": {"id": "ants", "title": "x"}}, "#/query", INVALID),
    ],
)
def test_what_is_wrong_is_named(
    short: Any, change: dict[str, Any], pointer: str, problem: tuple[int, str]
) -> None:
    body = {"query": {"id": "ants"}, "match": "bees", "grade": 1, **change}
    answer = short.post("/feedback", json=body)
    assert (answer.status_code, answer.json()["type"]) == problem
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert listed(short) == []


def test_a_verdict_is_deleted(filled: Any) -> None:
    kept, gone = (give(filled, OF_TEXT, match).json()["id"] for match in ("ants", "bees"))
    assert filled.delete(f"/feedback/{gone}").status_code == 204
    assert [entry["id"] for entry in listed(filled)] == [kept]
    assert counts(filled) == {"relevant": 1, "not_relevant": 0}
    for unknown in (gone, "x"):
        answer = filled.delete(f"/feedback/{unknown}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/feedback-not-found")


def test_a_deleted_document_takes_its_feedback_along(filled: Any) -> None:
    give(filled, {"id": "ants"}, "bees")
    give(filled, {"id": "bees"}, "ants")
    give(filled, OF_TEXT, "ants")
    kept = give(filled, OF_TEXT, "bees").json()
    assert filled.delete("/documents/ants").status_code == 204
    assert listed(filled) == [kept]
    assert counts(filled) == {"relevant": 1, "not_relevant": 0}
    replaced = {"documents": [{"id": "bees", "text": "Bees dance."}]}
    assert filled.post("/index", json=replaced).status_code == 200
    assert listed(filled) == [kept]
    filled.delete("/documents/bees")
    assert listed(filled) == []


def test_feedback_without_document_is_removed_at_start(filled: Any) -> None:
    """A backup copies the feedback before the documents."""
    engine = filled.app.state.engine
    give(filled, {"id": "ants"}, "bees")
    kept = give(filled, {"id": "bees"}, "tax law").json()
    engine.default.data.store.delete(["ants"])  # as it would be without the feedback
    engine.opened.close()
    again = open_engine(engine.settings)
    try:
        assert unready_because(again) is None
        assert [entry.id for entry in again.default.feedback.listed("", 10)] == [kept["id"]]
    finally:
        again.opened.close()


def test_more_than_the_settings_allow_is_refused(make_client: Callable[..., Any]) -> None:
    client = fill(make_client(max_feedback=2))
    give(client, {"id": "ants"}, "bees")
    give(client, {"id": "ants"}, "tax law")
    answer = give(client, {"id": "bees"}, "ants")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/feedback-full")
    assert "2 verdicts (max_feedback)" in answer.json()["detail"]
    assert give(client, {"id": "ants"}, "bees", 0).json()["grade"] == 0  # a change is no more
    client.delete(f"/feedback/{listed(client)[0]['id']}")
    assert give(client, {"id": "bees"}, "ants").status_code == 200
    assert client.get("/version").json()["limits"]["max_feedback"] == 2

"""Families over HTTP: `collapse` in POST /match, and what documents say of theirs."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.paragraphs import text_of

FIRST = list(range(4))  # all that the tiny checkpoint reads are six paragraphs
DOCUMENTS = {
    "first": FIRST,
    "copy": FIRST,
    "edited": [*FIRST[:3], 100],
    "longer": [*FIRST, 200],
    "quoting": [FIRST[0], 300, 301, 302],
    "other": list(range(400, 404)),
    "other copy": list(range(400, 404)),
    "alone": list(range(500, 504)),
}
FAMILY = {"first", "copy", "edited", "longer"}
MODES = ("semantic", "lexical", "hybrid")


@pytest.fixture(scope="module")
def versions(make_shared_client: Callable[[], Any]) -> Any:
    """Return a client of an application that holds DOCUMENTS; do not change what it holds."""
    client = make_shared_client()
    for name, paragraphs in DOCUMENTS.items():
        metadata = {"paragraphs": len(paragraphs)}
        document = {"id": name, "text": text_of(paragraphs), "metadata": metadata}
        assert client.post("/index", json={"documents": [document]}).status_code == 200
    return client


def matched(client: Any, **asked: Any) -> list[dict[str, Any]]:
    response = client.post("/match", json={"text": text_of(FIRST), **asked})
    assert response.status_code == 200, response.text
    return list(response.json()["matches"])


@pytest.mark.parametrize("mode", MODES)
def test_one_match_of_each_family(versions: Any, mode: str) -> None:
    every = matched(versions, mode=mode, top_k=8)
    if mode != "lexical":  # which reads the telling words alone
        assert {query["id"] for query in every} >= FAMILY
    assert all((query["family"], query["collapsed"]) == (None, []) for query in every)
    found = matched(versions, mode=mode, top_k=8, collapse=True)
    best = found[0]
    assert best["id"] in ("first", "copy")
    assert set(best["collapsed"]) == FAMILY - {best["id"]}
    listed = {
        document["id"]: document["family"]
        for document in versions.get("/documents").json()["documents"]
    }
    assert best["family"] == listed["first"] == listed["longer"]
    assert listed["alone"] is listed["quoting"] is None
    given = [entry["id"] for entry in found]
    assert len(FAMILY & set(given)) == 1
    kept = {query["id"]: query for query in every}
    for item in found:  # as without collapsing, the best of each
        same = {name: part for name, part in item.items() if name not in ("family", "collapsed")}
        assert same == {name: kept[item["id"]][name] for name in same}
    assert [element["score"] for element in found] == sorted(
        (each["score"] for each in found), reverse=True
    )


def test_a_stored_document_finds_its_own_family_once(versions: Any) -> None:
    response = versions.post("/match", json={"id": "first", "collapse": True, "mode": "semantic"})
    matches = response.json()["matches"]
    assert matches[0]["id"] == "copy"
    assert set(matches[0]["collapsed"]) == FAMILY - {"first", "copy"}
    assert len(matches) == 4


def test_several_queries_are_collapsed_each(versions: Any) -> None:
    queries = [{"text": text_of(FIRST)}, {"id": "other"}]
    asked = {"queries": queries, "top_k": 2, "collapse": True}
    results = versions.post("/match", json=asked).json()["results"]
    assert [len(result["matches"]) for result in results] == [2, 2]
    assert results[1]["matches"][0]["id"] == "other copy"
    assert results[1]["matches"][0]["collapsed"] == []


def test_a_filter_hides_what_it_leaves_out_behind_a_match_too(versions: Any) -> None:
    where = {"field": "paragraphs", "equal": 4}
    found = matched(versions, filter=where, exclude=["copy"], collapse=True, top_k=8)
    assert (found[0]["id"], found[0]["collapsed"]) == ("first", ["edited"])
    assert {item["id"] for item in found} >= {"alone", "quoting"}


def test_a_document_says_its_family(versions: Any) -> None:
    page = versions.get("/documents/edited/family").json()
    assert page["next_cursor"] is None
    assert [document["id"] for document in page["documents"]] == sorted(FAMILY)
    assert [document["id"] for document in page["documents"] if document["copy"]] == ["edited"]
    page = versions.get("/documents/first/family").json()
    assert {document["id"] for document in page["documents"] if document["copy"]} == {
        "first",
        "copy",
    }
    assert versions.get("/documents/first").json()["family"] == page["family"]
    assert "family" not in versions.get("/documents/alone").json()
    nothing = {"family": None, "documents": [], "next_cursor": None}
    assert versions.get("/documents/alone/family").json() == nothing


def test_a_family_comes_a_page_at_a_time(versions: Any) -> None:
    seen: list[str] = []
    path = "/documents/first/family?limit=3"
    cursor = ""
    while cursor is not None:
        page = versions.get(f"{path}&cursor={cursor}" if cursor else path).json()
        seen += [document["id"] for document in page["documents"]]
        cursor = page["next_cursor"]
    assert seen == sorted(FAMILY)


@pytest.mark.parametrize("unknown", ["nobody", "a%00b", "%ED%A0%80", "first/family/family"])
def test_the_family_of_an_unknown_document_is_not_found(versions: Any, unknown: str) -> None:
    response = versions.get(f"/documents/{unknown}/family")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_a_family_larger_than_the_response_hides_no_document(filled: Any, mode: str) -> None:
    text = "Ants live in colonies. Each colony has a queen. Workers carry leaves and seeds home."
    documents = [{"id": f"copy {number:02}", "text": text} for number in range(30)]
    assert filled.post("/index", json={"documents": documents}).status_code == 200
    asked = {"text": text, "mode": mode, "top_k": 3, "collapse": True}
    answer = filled.post("/match", json=asked).json()
    families = [hit["family"] for hit in answer["matches"]]
    assert len(families) == 3
    assert families[0] is not None
    assert families[1:] == [None, None]
    assert len(answer["matches"][0]["collapsed"]) == 10
    assert answer["matches"][0]["id"] not in answer["matches"][0]["collapsed"]
    assert len(filled.get("/documents/ants/family").json()["documents"]) == 31


def test_switched_off_nothing_new_is_found(make_client: Callable[..., Any]) -> None:
    client = make_client(find_families=False)
    for name in ("one", "other"):
        body = {"documents": [{"id": name, "text": text_of(FIRST)}]}
        assert client.post("/index", json=body).status_code == 200
    client.app.state.engine.default.maintenance.work()
    assert client.get("/documents/one/family").json()["family"] is None
    assert len(matched(client, collapse=True)) == 2

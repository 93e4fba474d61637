"""GET and DELETE /documents/{id} as a client sees them."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from tests.kit.problems import problem

AWKWARD_IDS = [
    "/leading",
    "trailing/",
    "..",
    "../up",
    "%2F",
    "a?b#c&d=e",
    "🐜" * 100,
    "e\u0301",
    "\u2028",
    "x" * 512,
]


def test_a_document_is_shown_without_its_text(library: Any) -> None:
    response = library.get("/documents/bees")
    assert response.status_code == 200
    shown = response.json()
    assert shown.keys() == {"id", "title", "metadata", "receipt", "indexed_at"}
    assert (shown["id"], shown["title"], shown["metadata"]) == ("bees", "Bees", {"letters": 4})
    assert shown["receipt"]["tokens"] == shown["receipt"]["tokens_read"] > 0
    age = datetime.now(UTC) - datetime.fromisoformat(shown["indexed_at"])
    assert age.total_seconds() < 3600


def test_the_text_comes_when_asked_for(library: Any, texts: dict[str, str]) -> None:
    assert library.get("/documents/bees?text=true").json()["text"] == texts["bees"]
    assert "text" not in library.get("/documents/bees?text=false").json()


@pytest.mark.parametrize("document_id", AWKWARD_IDS)
def test_any_id_can_be_stored_shown_matched_and_deleted(empty: Any, document_id: str) -> None:
    stored = empty.post("/index", json={"documents": [{"id": document_id, "text": "Ants."}]})
    assert stored.status_code == 200
    path = "/documents/" + quote(document_id, safe="").replace(".", "%2E")
    assert empty.get(path).json()["id"] == document_id
    assert empty.post("/match", json={"id": document_id}).status_code == 200
    response = empty.delete(path)
    assert response.status_code == 204
    assert response.content == b""
    assert empty.get(path).status_code == 404


def test_a_deleted_document_is_gone_from_everywhere(filled: Any) -> None:
    assert filled.delete("/documents/bees").status_code == 204
    assert filled.get("/documents/bees").status_code == 404
    assert filled.post("/match", json={"id": "bees"}).status_code == 404
    matches = filled.post("/match", json={"text": "Bees live in hives."}).json()["matches"]
    assert "bees" not in [match["id"] for match in matches]
    assert len(matches) == 3
    assert filled.get("/readyz").json()["documents"] == 3


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("document_id", ["wasps", "", "x" * 2000, "a%00b", "%FF", "%ED%A0%80"])
def test_an_unknown_document_is_not_found(library: Any, method: str, document_id: str) -> None:
    response = library.request(method, f"/documents/{document_id}")
    problem(response, 404, "document-not-found")


def test_a_query_parameter_that_is_wrong_is_named(library: Any) -> None:
    response = library.get("/documents/bees?text=perhaps")
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["parameter"] == "text"


def test_the_list_is_sorted_and_filtered(library: Any) -> None:
    seen, after = list[str](), ""
    for _ in range(4):
        page = library.get(f"/documents?limit=1&sort=-title{after}").json()
        seen += [document["title"] for document in page["documents"]]
        after = f"&cursor={page['next_cursor']}"
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 4
    where = quote('{"field": "letters", "equal": 4}')
    listed = library.get(f"/documents?filter={where}").json()["documents"]
    assert [document["id"] for document in listed] == ["ants", "bees"]
    (facet,) = library.get(f"/facets?filter={where}").json()["facets"]
    assert facet == {"field": "letters", "documents": 2, "values": [{"value": 4, "documents": 2}]}
    assert library.get("/facets").json()["facets"][0]["documents"] == 4


@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ("sort=tokens", "sort", "'size'"),
        ("filter=%7B", "filter", "JSON"),
        ("filter=%7B%22field%22:1,%22equal%22:2%7D", "filter", "field"),
        ("sort=title&cursor=WzEsICJhIl0", "cursor", "order title"),
    ],
)
def test_a_wrong_sort_filter_or_cursor_is_named(
    library: Any, query: str, parameter: str, says: str
) -> None:
    (error,) = problem(library.get(f"/documents?{query}"), 422, "invalid-input")["errors"]
    assert error["parameter"] == parameter
    assert says in error["detail"]

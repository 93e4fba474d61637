"""GET /documents: pages, export; and GET /documents/{id}/similar."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from index.corpus.reader import read_corpus
from index.document import Document
from service.documents import logic as service_documents
from tests.kit.problems import problem

LINES = {"accept": "application/x-ndjson"}


def walk(client: Any, limit: int) -> list[str]:
    """Return the ids of all pages, in order."""
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        path = f"/documents?limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        page = client.get(path).json()
        assert len(page["documents"]) <= limit
        seen += [document["id"] for document in page["documents"]]
        cursor = page["next_cursor"]
    return seen


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 1000])
def test_pages_hold_every_document_once(library: Any, texts: dict[str, str], limit: int) -> None:
    assert walk(library, limit) == sorted(texts)


def test_a_page_shows_what_a_document_shows(library: Any) -> None:
    page = library.get("/documents").json()
    assert page["next_cursor"] is None
    for shown in page["documents"]:
        path = "/documents/" + quote(shown["id"], safe="")
        assert {**library.get(path).json(), "family": None} == shown  # each is in none


def test_a_cursor_holds_while_documents_come_and_go(filled: Any) -> None:
    first = filled.get("/documents?limit=2").json()
    filled.delete("/documents/" + quote(first["documents"][1]["id"], safe=""))
    filled.post("/index", json={"documents": [{"id": "aaa", "text": "New."}]})
    filled.post("/index", json={"documents": [{"id": "tax law", "text": "Changed."}]})
    second = filled.get(f"/documents?limit=2&cursor={first['next_cursor']}").json()
    assert [document["id"] for document in second["documents"]] == ["bees", "tax law"]


@pytest.mark.parametrize("cursor", ["x", "!!!", "%FF", "bees", "articles/bees", "a" * 9_000])
def test_what_is_no_cursor_is_refused(library: Any, cursor: str) -> None:
    response = library.get(f"/documents?cursor={cursor}")
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["parameter"] == "cursor"


@pytest.mark.parametrize("characters", [1, 100, 1_000_000])
def test_an_export_can_be_indexed_again(
    filled: Any,
    texts: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    characters: int,
) -> None:
    """Whatever part of the documents is in memory at a time."""
    monkeypatch.setattr(service_documents, "CHARACTERS_AT_A_TIME", characters)
    odd = {
        "id": "odd",
        "text": "Line\nbreak \u2028 \x85 \x00 𝄞.",
        "metadata": {"a": [None, {"b": 0.1}]},
    }
    filled.post("/index", json={"documents": [odd]})
    response = filled.get("/documents", headers=LINES)
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.content.splitlines()]
    assert [line["id"] for line in lines] == sorted([*texts, "odd"])
    corpus = tmp_path / "export.jsonl"
    corpus.write_bytes(response.content)
    read = list(read_corpus(corpus))
    assert all(isinstance(text, Document) for text in read)
    stored = filled.app.state.engine.default.data.store.find([*texts, "odd"])
    assert {text.id: text for text in read} == {
        name: item.document for name, item in stored.items()
    }


def test_an_export_goes_on_from_a_cursor(library: Any) -> None:
    cursor = library.get("/documents?limit=2").json()["next_cursor"]
    lines = library.get(f"/documents?cursor={cursor}", headers=LINES).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["bees", "tax law"]


def test_another_kind_of_answer_is_not_acceptable(library: Any) -> None:
    response = library.get("/documents", headers={"accept": "text/csv"})
    assert response.status_code == 406
    assert "application/x-ndjson" in response.json()["detail"]


def test_an_unreadable_store_is_an_error_before_any_line(client: Any) -> None:
    client.app.state.engine.default.data.store.close()
    response = client.get("/documents", headers=LINES)
    problem(response, 500, "internal-error")


def test_similar_documents_are_those_of_a_match(library: Any) -> None:
    similar = library.get("/documents/bees/similar?top_k=2").json()
    matched = library.post("/match", json={"id": "bees", "top_k": 2}).json()
    assert similar.pop("timings").keys() == matched.pop("timings").keys()
    assert similar == matched
    assert "bees" not in [match["id"] for match in similar["matches"]]
    least = similar["matches"][0]["score"]
    fewer = library.get(f"/documents/bees/similar?min_score={least - 1e-6}").json()["matches"]
    assert [match["id"] for match in fewer] == [similar["matches"][0]["id"]]


def test_an_id_that_ends_in_similar(filled: Any) -> None:
    filled.post("/index", json={"documents": [{"id": "bees/similar", "text": "Wasps."}]})
    assert filled.get("/documents/bees%2Fsimilar").json()["id"] == "bees/similar"
    assert "matches" in filled.get("/documents/bees/similar").json()
    assert "matches" in filled.get("/documents/bees%2Fsimilar/similar").json()
    assert filled.delete("/documents/bees/similar").status_code == 204
    assert filled.get("/documents/bees%2Fsimilar").status_code == 404
    assert filled.get("/documents/bees").status_code == 200


def test_what_is_similar_to_nothing_is_not_found(library: Any) -> None:
    response = library.get("/documents/wasps/similar")
    problem(response, 404, "document-not-found")
    assert "errors" not in response.json()


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        *(("top_k=0", "top_k"), ("top_k=1001", "top_k"), ("top_k=x", "top_k")),
        *(("min_score=2", "min_score"), ("min_score=nan", "min_score")),
    ],
)
def test_a_parameter_of_similar_that_is_wrong_is_named(
    library: Any, query: str, parameter: str
) -> None:
    response = library.get(f"/documents/bees/similar?{query}")
    assert response.status_code == 422
    assert response.json()["errors"][0]["parameter"] == parameter

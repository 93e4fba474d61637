"""A stored document that is damaged: it is named, and everything else goes on."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from service.engine import Engine

BEES = "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home."
# A byte that UTF-8 does not have at the end of each; and a text that is valid, but another one.
DAMAGES = {
    "text": "UPDATE documents SET text = CAST(text || x'ff' AS TEXT) WHERE id = 'bees'",
    "another text": "UPDATE documents SET text = 'Bees live in houses.' WHERE id = 'bees'",
    "title": "UPDATE documents SET title = CAST(x'42656573ff' AS TEXT) WHERE id = 'bees'",
    "metadata": "UPDATE documents SET metadata = '{\"letters\": 5}' WHERE id = 'bees'",
    "vector": "UPDATE vectors SET vector = zeroblob(length(vector)) WHERE vector_id = 2",
    "block vectors": "UPDATE block_vectors SET vectors = x'00' WHERE vector_id = 2",
}
OTHERS = {"ants", "tax law", "a/b c/ü?#%"}
WORDS = ("Bees", "hives", "nectar")


def damage(client: Any, statement: str, name: str = "store.sqlite3") -> None:
    path = client.app.state.engine.default.data.path / name
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def found(client: Any, body: dict[str, Any]) -> set[str]:
    response = client.post("/match", json=body)
    assert response.status_code == 200, response.text
    return {hit["id"] for hit in response.json()["matches"]}


def says_damaged(response: Any) -> None:
    problem = response.json()
    assert (response.status_code, problem["type"]) == (500, "/problems/document-damaged")
    assert problem["id"] == "bees"
    assert "'bees' is damaged in its" in problem["detail"]


@pytest.mark.parametrize("part", DAMAGES)
def test_everything_else_is_answered(
    filled: Any, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(filled, DAMAGES[part])
    for mode in ("semantic", "lexical", "hybrid"):
        among = found(filled, {"text": BEES, "mode": mode, "explain": {"matches": 10}})
        assert among >= (OTHERS if mode != "lexical" else {"ants"})
    assert found(filled, {"id": "ants"}) >= {"tax law"}
    listed = filled.get("/documents?limit=2").json()
    assert len(listed["documents"]) + len(listed["damaged"]) == 2
    lines = filled.get("/documents", headers={"accept": "application/x-ndjson"}).text.splitlines()
    exported = {item["id"]: item for item in map(json.loads, lines)}
    assert exported.keys() == {*OTHERS, "bees"}
    assert all(exported[other]["text"] for other in OTHERS)
    if part in ("text", "another text", "title", "metadata"):
        assert exported["bees"] == {"id": "bees", "damaged": True}
        says_damaged(filled.get("/documents/bees"))
        says_damaged(filled.post("/match", json={"id": "bees"}))
        sides = {"left": {"id": "bees"}, "right": {"id": "ants"}}
        says_damaged(filled.post("/compare", json=sides))
    elif part == "vector":
        says_damaged(filled.post("/match", json={"id": "bees"}))
    else:
        assert filled.post("/match", json={"id": "bees"}).status_code == 200
    ready = filled.get("/readyz").json()
    assert (ready["status"], ready["degraded"]) == ("degraded", ["damaged_documents"])
    exposed = filled.get("/metrics").text.splitlines()
    assert 'longmatch_damaged_documents{collection="default"} 1.0' in exposed
    assert "document 'bees' is damaged" in caplog.text
    for word in WORDS:
        assert word not in caplog.text


@pytest.mark.parametrize("part", DAMAGES)
def test_indexing_it_again_repairs_it(filled: Any, engine: Engine, part: str) -> None:
    damage(filled, DAMAGES[part])
    document = {"id": "bees", "text": BEES, "title": "Bees", "metadata": {"letters": 4}}
    response = filled.post("/index", json={"documents": [document]})
    assert response.status_code == 200
    assert filled.get("/readyz").json()["status"] == "ready"
    shown = filled.get("/documents/bees?text=true").json()
    assert {name: shown[name] for name in document} == document
    assert engine.default.data.store.block_vectors([shown_id(engine)])
    assert found(filled, {"text": BEES}) == {*OTHERS, "bees"}


def shown_id(engine: Engine) -> int:
    return engine.default.data.store.find(["bees"])["bees"].vector_id


@pytest.mark.parametrize("part", DAMAGES)
def test_it_can_be_deleted(filled: Any, part: str) -> None:
    damage(filled, DAMAGES[part])
    filled.get("/documents", headers={"accept": "application/x-ndjson"})
    assert filled.delete("/documents/bees").status_code == 204
    assert filled.get("/readyz").json()["status"] == "ready"
    assert found(filled, {"text": BEES}) == OTHERS


def test_a_damaged_vector_leaves_its_place_to_the_next(
    filled: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in an index that holds rounded vectors, which knows nothing of the damage."""
    monkeypatch.setattr(type(engine.default.data.index), "exact", False)
    best = filled.post("/match", json={"text": BEES, "top_k": 3}).json()["matches"]
    assert best[0]["id"] == "bees"
    damage(filled, DAMAGES["vector"])
    for mode in ("hybrid", "semantic"):
        response = filled.post("/match", json={"text": BEES, "top_k": 3, "mode": mode})
        assert {hit["id"] for hit in response.json()["matches"]} == OTHERS


@pytest.mark.parametrize("signature", ["x'00'", "'text'", "7"])
def test_a_damaged_signature_blocks_no_write_or_delete(
    filled: Any, signature: str, caplog: pytest.LogCaptureFixture
) -> None:
    long = " ".join(f"{BEES} Number {number}." for number in range(9))
    put = [{"id": name, "text": f"{long} {name}."} for name in ("one", "two")]
    assert filled.post("/index", json={"documents": put[:1]}).status_code == 200
    damage(filled, f"UPDATE texts SET signature = {signature}", "families.sqlite3")
    assert filled.post("/index", json={"documents": put[1:]}).status_code == 200
    assert "the signature of a text is damaged" in caplog.text
    family = filled.get("/documents/two/family").json()["documents"]
    assert [member["id"] for member in family] == ["one", "two"]
    for name in ("one", "bees"):
        assert filled.delete(f"/documents/{name}").status_code == 204
    assert found(filled, {"text": BEES}) == {*OTHERS, "two"}
    for word in WORDS:
        assert word not in caplog.text

"""What is damaged in the store or in a follower is named, and its words are in no log."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

BEES = "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home."
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


@pytest.mark.parametrize("metadata", ["{", "7"])
def test_a_document_whose_metadata_cannot_be_read_is_named(
    filled: Any, metadata: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(filled, f"UPDATE documents SET metadata = '{metadata}' WHERE id = 'bees'")
    for response in (filled.get("/documents/bees"), filled.post("/match", json={"text": BEES})):
        problem = response.json()
        assert (response.status_code, problem["type"]) == (500, "/problems/document-damaged")
        assert problem["id"] == "bees"
        assert "'bees' is damaged in its metadata" in problem["detail"]
    assert not any(word in caplog.text for word in WORDS)
    assert filled.delete("/documents/bees").status_code == 204
    assert found(filled, {"text": BEES}) == OTHERS


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

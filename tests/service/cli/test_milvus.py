"""Commands whose vectors are in a Milvus, as a user types them."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from index.vectors.milvus.connection import MilvusConnection, parse_milvus_url
from tests.tools.command import Run
from tests.tools.milvus import MilvusServer

TEXTS = {
    "ants": "Ants live in colonies. Each colony has a queen. Workers carry leaves and seeds home.",
    "bees": "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home.",
    "ice": "Rivers carve valleys over thousands of years. Ice does the same, but faster.",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    path.write_text("\n".join(lines) + "\n")
    (tmp_path / "query.txt").write_text(TEXTS["ice"])
    return path


def test_index_match_and_doctor(
    longmatch: Run,
    corpus: Path,
    tmp_path: Path,
    milvus_server: MilvusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tmp_path / "data"
    for url in (milvus_server.url, f"milvus://{tmp_path}/lite.db", "faiss", milvus_server.url):
        monkeypatch.setenv("LONGMATCH_VECTORS", url)
        assert longmatch("index", corpus).status == 0
        found = longmatch("match", tmp_path / "query.txt", "--json")
        assert json.loads(found.out)["matches"][0]["id"] == "ice"
        assert found.err == ""
        assert longmatch("doctor", data).status == 0
    assert (tmp_path / "lite.db").is_dir()


@pytest.mark.slow
def test_doctor_finds_and_repairs_what_differs(
    longmatch: Run,
    corpus: Path,
    tmp_path: Path,
    milvus_server: MilvusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tmp_path / "data"
    monkeypatch.setenv("LONGMATCH_VECTORS", milvus_server.url)
    monkeypatch.setenv("LONGMATCH_WORDS", "milvus")
    assert longmatch("index", corpus).status == 0
    with closing(MilvusConnection(parse_milvus_url(milvus_server.url))) as connection:
        name, of_words = sorted(connection.call("list_collections"))
        vector = [1.0] + [0.0] * 31
        connection.call("upsert", name, data=[{"id": 1, "vector": vector}])
        connection.call("delete", name, ids=[2])
        rows = connection.call("query", of_words, filter="id >= 0", output_fields=["change"])
        changes = {row["id"]: row["change"] for row in rows}
        for number, change in ((1, changes[1]), (2, 99), (999, 1)):
            row = {"id": number, "change": change, "words": {7: 1.0}}
            connection.call("upsert", of_words, data=[row])
    found = longmatch("doctor", data)
    assert found.status == 1
    assert "index: 1 vectors differ from the store" in found.err
    assert "index: 1 documents are missing" in found.err
    assert "words in Milvus: 1 documents are missing or old, vector id 2 for one" in found.err
    assert "words in Milvus: 1 documents are not in the store" in found.err
    assert "words in Milvus: those of 1 documents differ from the store" in found.err
    repaired = longmatch("doctor", data, "--repair")
    assert repaired.err.endswith("no problems found\n")
    with closing(MilvusConnection(parse_milvus_url(milvus_server.url))) as connection:
        assert sorted(connection.call("list_collections"))[1] == of_words
    monkeypatch.setenv("LONGMATCH_WORDS", "local")
    assert longmatch("index", corpus).status == 0
    with closing(MilvusConnection(parse_milvus_url(milvus_server.url))) as connection:
        assert len(connection.call("list_collections")) == 1


def test_without_the_milvus_every_command_says_so_in_one_line(
    longmatch: Run,
    corpus: Path,
    tmp_path: Path,
    milvus_server: MilvusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, query = tmp_path / "data", tmp_path / "query.txt"
    monkeypatch.setenv("LONGMATCH_VECTORS", milvus_server.url)
    monkeypatch.setenv("LONGMATCH_VECTORS_SECONDS", "0.5")
    assert longmatch("index", corpus).status == 0
    milvus_server.kill()
    for command in (("index", corpus), ("match", query), ("doctor", data), ("serve",)):
        answer = longmatch(*command)
        assert answer.status == 2, command
        assert "error: Milvus at http://127.0.0.1" in answer.err.splitlines()[-1], command
    milvus_server.start()
    assert longmatch("match", query).status == 0


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("milvus://user:secret@host/a/b", "is no name of a database"),
        ("qdrant://user:secret@host", "is none of the forms milvus://HOST:PORT/DATABASE"),
    ],
)
def test_a_wrong_address_is_refused_without_its_password(
    longmatch: Run, corpus: Path, url: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGMATCH_VECTORS", url)
    for command in ("index", corpus), ("serve",):
        answer = longmatch(*command)
        assert answer.status == 2
        assert answer.err.splitlines()[-1].startswith("error: vectors: ")
        assert complaint in answer.err
        assert "secret" not in answer.err

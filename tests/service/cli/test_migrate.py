"""`longmatch migrate`, as a user types it."""

import json
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest

from tests.tools.command import Run
from tests.tools.postgresql import PostgreSQLServer

TEXTS = {
    "ants": "Ants live in colonies. Each colony has a queen. Workers carry leaves and seeds home.",
    "bees": "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home.",
    "ice": "Rivers carve valleys over thousands of years. Ice does the same, but faster.",
}


@pytest.fixture
def schema() -> str:
    return f"c{uuid4().hex}"


def test_to_postgresql_and_back(
    longmatch: Run, tmp_path: Path, postgresql_server: PostgreSQLServer, schema: str
) -> None:
    corpus, query = tmp_path / "corpus.jsonl", tmp_path / "query.txt"
    corpus.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in TEXTS.items()))
    query.write_text(TEXTS["ice"])
    data, new, url = tmp_path / "data", tmp_path / "new", postgresql_server.url
    assert longmatch("index", corpus).status == 0
    found = [longmatch("match", query, "--json", "--mode", m).out for m in ("hybrid", "lexical")]

    for _ in range(2):  # the second time everything is there
        there = longmatch("migrate", data, "--to", url, "--schema", schema)
        assert there.status == 0
        shown = f"{url} (schema {schema})"
        assert there.err.endswith(f"{shown}: 3 documents, the same as in {data}\n")
    back = longmatch("migrate", new, "--from", url, "--schema", schema)
    assert back.status == 0
    assert back.err.endswith(f"{new}: 3 documents, the same as in {shown}\n")

    again = [
        longmatch("match", query, "--json", "--mode", mode, "--data", new).out
        for mode in ("hybrid", "lexical")
    ]
    assert list(map(matches_of, again)) == list(map(matches_of, found))
    assert longmatch("doctor", new).err.endswith("no problems found\n")


def test_an_interruption_says_how_to_resume(
    longmatch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.cli.data.migrate_from", interrupted)
    answer = longmatch("migrate", tmp_path / "new", "--from", "postgresql://127.0.0.1:1/d")
    assert answer.status == 130
    assert answer.err == "stopped: run the same command again to resume\n"


def matches_of(answer: str) -> list[tuple[str, float]]:
    return [(one["id"], one["score"]) for one in json.loads(answer)["matches"]]


def test_a_server_that_is_down_is_one_line_without_the_password(
    longmatch: Run, tmp_path: Path
) -> None:
    answer = longmatch(
        "migrate", tmp_path / "new", "--from", "postgresql://me:secret@127.0.0.1:1/d"
    )
    assert answer.status == 2
    assert answer.err.startswith(
        "error: postgresql://me@127.0.0.1:1/d (schema longmatch): the data"
    )
    assert answer.err.count("\n") == 1
    assert "secret" not in answer.err
    assert not (tmp_path / "new").exists()

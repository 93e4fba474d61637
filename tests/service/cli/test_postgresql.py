"""The commands with their documents in a PostgreSQL, as a user types them."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.tools.command import Run
from tests.tools.postgresql import PostgreSQLServer

SUBJECTS = ("ants", "bees", "rivers", "glaciers", "harbours", "trains", "violins", "lanterns")
DEEDS = ("carry leaves home", "carve the valley", "wait for the morning", "follow the coast")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty documents; every eighth one is a copy of another."""
    texts = [
        f"The {SUBJECTS[n % 8]} {DEEDS[n % 4]}. Number {n % 35} of them is the oldest. "
        f"Nobody knows why the {SUBJECTS[n % 7]} do the same."
        for n in range(40)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": f"d{n}", "text": text, "title": f"T{n}", "metadata": {"n": n}}) + "\n"
            for n, text in enumerate(texts)
        )
    )
    return path


@pytest.fixture
def use_postgresql(
    monkeypatch: pytest.MonkeyPatch, postgresql_server: PostgreSQLServer
) -> Callable[[], None]:
    """Let the commands from now on use a schema of their own."""
    schema = f"c{uuid4().hex}"

    def use() -> None:
        monkeypatch.setenv("LONGMATCH_STORE", postgresql_server.url)
        monkeypatch.setenv("LONGMATCH_STORE_SCHEMA", schema)

    return use


def test_the_same_answers_as_of_a_data_directory(
    longmatch: Run, tmp_path: Path, corpus: Path, use_postgresql: Callable[[], None]
) -> None:
    query = tmp_path / "query.txt"
    query.write_text("The ants carry leaves home. They wait for violins.")
    asked = [
        (query, "--mode", mode, *options)
        for mode in ("semantic", "hybrid", "lexical")
        for options in ((), ("--collapse", "--filter", '{"field": "n", "range": {"lt": 39}}'))
    ]
    own, one, other = (tmp_path / name for name in ("own", "one", "other"))

    def answers(data: Path) -> list[object]:
        found = [longmatch("match", *a, "--json", "--data", data) for a in asked]
        assert [answer.status for answer in found] == [0] * len(asked)
        return [json.loads(answer.out)["matches"] for answer in found]

    assert longmatch("index", corpus, "--data", own).status == 0
    expected = answers(own)
    families = json.loads(longmatch("families", "--json", "--data", own).out)
    use_postgresql()
    assert longmatch("index", corpus, "--data", one).status == 0
    assert answers(other) == expected  # a copy that is made now
    shown = json.loads(longmatch("families", "--json", "--data", other).out)
    assert (shown["families"], shown["documents"]) == (families["families"], families["documents"])
    assert longmatch("index", corpus, "--data", other).err.endswith("40 unchanged, 0 skipped\n")
    assert longmatch("doctor", other).err.endswith("no problems found\n")
    refused = longmatch("match", query, "--data", own)
    assert refused.status == 2
    assert "has documents of its own" in refused.err
    for command in (
        ("snapshot", one, "-o", tmp_path / "backup"),
        ("restore", own, tmp_path / "new"),
        ("reencode", one, "--reading-share", "0.5"),
        ("tune", one),
        ("index", corpus, "--adapt"),
        ("demo",),
    ):
        answer = longmatch(*command)
        assert (answer.status, answer.err.count("\n")) == (2, 1)
        assert answer.err.startswith("error: LONGMATCH_STORE: the documents are in postgresql://")


def test_a_copy_is_not_used_without_its_database(
    longmatch: Run,
    tmp_path: Path,
    corpus: Path,
    use_postgresql: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_postgresql()
    assert longmatch("index", corpus).status == 0
    monkeypatch.delenv("LONGMATCH_STORE")
    query = tmp_path / "query.txt"
    query.write_text("Ants.")
    for command in (
        ("index", corpus),
        ("match", query),
        ("migrate", tmp_path / "data", "--to", "postgresql://127.0.0.1:1/d"),
    ):
        answer = longmatch(*command)
        assert (answer.status, answer.err.count("\n")) == (2, 1)
        assert "holds a copy of a PostgreSQL" in answer.err

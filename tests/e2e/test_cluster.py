"""A whole cluster on this machine: Ray, PostgreSQL, Milvus with vectors and words, two servers."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.index.distributed.test_index_on_ray import write_corpus
from tests.tools.milvus import MilvusServer
from tests.tools.postgresql import PostgreSQLServer
from tests.tools.process_fixtures import COMMAND, Server, environment

Variables = Mapping[str, str]
Serve = Callable[..., Any]


def start(variables: Variables, *arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, env={**variables}, stderr=subprocess.PIPE, text=True)


def end(job: subprocess.Popen[str]) -> tuple[int, str]:
    """Return status and errors of a command."""
    errors = job.communicate(timeout=300)[1]
    assert "Traceback" not in errors
    return job.returncode, errors


def answers(server: Server, ids: list[str]) -> list[list[tuple[str, float]]]:
    """Ask a server for the best matches of documents in every mode, filtered and collapsed."""
    year = {"field": "/year", "in": [1, 3]}
    kinds = [{"mode": mode} for mode in ("semantic", "lexical", "hybrid")]
    found = []
    for kind in (*kinds, {"mode": "hybrid", "filter": year}, {"mode": "hybrid", "collapse": True}):
        for one in ids:
            status, answer = server.request("POST", "/match", {"id": one, "top_k": 10, **kind})
            assert status == 200, answer
            found.append([(m["id"], round(m["score"], 5)) for m in answer["matches"]])
    return found


@pytest.mark.slow
def test_the_answers_are_those_of_one_machine(
    serve: Serve,
    tiny_checkpoint: Path,
    tmp_path: Path,
    postgresql_server: PostgreSQLServer,
    milvus_server: MilvusServer,
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, 160)
    lines = corpus.read_text(encoding="utf-8").splitlines()[:160]
    records = [json.loads(line) for line in lines]
    for number, record in enumerate(records):
        record["metadata"] = {"year": record.pop("year")}
        if number % 40 == 7:  # a copy, so that there are families
            record["text"] = records[number - 3]["text"]
    corpus.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    settings = {
        "store": postgresql_server.url,
        "store_schema": f"e{uuid4().hex}",
        "vectors": milvus_server.url,
        "words": "milvus",
    }
    plain = environment(tiny_checkpoint)
    shared = plain | {f"LONGMATCH_{name.upper()}": value for name, value in settings.items()}
    on_ray = ("--on", "ray", "--actors", 2, "--threads", 1)
    assert end(start(plain, "index", corpus, "--data", tmp_path / "alone"))[0] == 0
    done = end(start(shared, "index", corpus, "--data", tmp_path / "first", *on_ray))
    assert done[0] == 0, done[1]
    ids = [f"d{number}" for number in range(0, 160, 8)]
    with ExitStack() as servers:
        alone = servers.enter_context(serve(tmp_path / "alone", tiny_checkpoint))
        expected = answers(alone, ids)
        for name in ("first", "second"):
            node = servers.enter_context(serve(tmp_path / name, tiny_checkpoint, **settings))
            assert answers(node, ids) == expected


@pytest.mark.slow
def test_two_jobs_index_one_collection_at_once(
    tiny_checkpoint: Path, tmp_path: Path, postgresql_server: PostgreSQLServer
) -> None:
    """In one data directory the second is refused; in two, both store all, and nothing twice."""
    schema, url = f"e{uuid4().hex}", postgresql_server.url
    shared = environment(tiny_checkpoint) | {
        "LONGMATCH_STORE": url,
        "LONGMATCH_STORE_SCHEMA": schema,
    }
    corpora = [tmp_path / f"corpus-{number}.jsonl" for number in range(2)]
    for number, corpus in enumerate(corpora):
        with corpus.open("w", encoding="utf-8") as file:
            for one in range(1_000 * number, 1_000 * number + 1_500):  # 500 are in both
                file.write(json.dumps({"id": f"d{one}", "text": f"Document {one} is here."}) + "\n")
    one, other = tmp_path / "one", tmp_path / "other"
    small = tmp_path / "small.jsonl"
    small.write_text('{"id": "small", "text": "It is here already."}\n', encoding="utf-8")
    assert end(start(shared, "index", small, "--data", one))[0] == 0
    with psycopg.connect(url) as held, psycopg.connect(url, autocommit=True) as looking:
        held.execute(f"SELECT FROM {schema}.meta FOR UPDATE".encode())
        first = start(shared, "index", corpora[0], "--data", one)
        while not looking.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
            assert first.poll() is None
            time.sleep(0.05)
        status, refused = end(start(shared, "index", corpora[1], "--data", one))
        assert status == 2
        assert refused.splitlines()[-1] == f"error: {one}: in use by another process"
        second = start(shared, "index", corpora[1], "--data", other)
    for job in (first, second):
        status, errors = end(job)
        assert status == 0, errors
    for corpus, data in ((corpora[1], one), (corpora[0], other)):  # each sees what both have stored
        status, errors = end(start(shared, "index", corpus, "--data", data))
        assert (status, errors.endswith("1500 unchanged, 0 skipped\n")) == (0, True), errors
        status, errors = end(start(shared, "doctor", data))
        assert (status, errors.endswith("no problems found\n")) == (0, True), errors

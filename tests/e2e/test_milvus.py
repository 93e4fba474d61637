"""A real server whose vectors are in a Milvus: the same requests, the same answers."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from index.vectors.milvus.connection import MilvusConnection, parse_milvus_url
from tests.tools.milvus import MilvusServer
from tests.tools.process_fixtures import COMMAND, Server, environment

TEXTS = {
    "ants": "Ants live in colonies. Each colony has a queen. Workers carry leaves and seeds home.",
    "bees": "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home.",
    "ice": "Rivers carve valleys over thousands of years. Ice does the same, but faster.",
}
MODES = ("semantic", "hybrid", "lexical")


def index(server: Server, documents: dict[str, str], place: str = "") -> int:
    entries = [
        {"id": name, "text": text, "metadata": {"length": len(text)}}
        for name, text in documents.items()
    ]
    return server.request("POST", f"{place}/index", {"documents": entries})[0]


def match(server: Server, text: str, place: str = "", **options: object) -> list[str]:
    status, answer = server.request("POST", f"{place}/match", {"text": text, **options})
    assert status == 200, answer
    return [one["id"] for one in answer["matches"]]


def collections(url: str) -> list[str]:
    with closing(MilvusConnection(parse_milvus_url(url))) as connection:
        return sorted(connection.call("list_collections"))


def wait_for(server: Server, degraded: list[str], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = server.request("GET", "/readyz")[1]
        if answer["degraded"] == degraded:
            return
        time.sleep(0.1)
    pytest.fail(f"/readyz says {answer}")


def test_documents_come_and_go_at_once_and_survive_a_kill(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data, url = tmp_path / "data", f"milvus://{tmp_path}/lite.db"
    with serve(data, tiny_checkpoint, vectors=url) as server:
        assert index(server, TEXTS) == 200
        for mode in MODES:
            assert match(server, TEXTS["bees"], mode=mode)[0] == "bees"
        short = {"field": "length", "range": {"lt": len(TEXTS["ants"])}}
        assert set(match(server, TEXTS["ants"], filter=short)) == {"bees", "ice"}
        assert server.request("DELETE", "/documents/bees")[0] == 204
        for mode in MODES:
            assert "bees" not in match(server, TEXTS["bees"], mode=mode)
        assert index(server, {"bees": TEXTS["bees"]}) == 200
        server.stop(signal.SIGKILL)
    with serve(data, tiny_checkpoint, vectors=url) as server:
        assert match(server, TEXTS["bees"])[0] == "bees"
        assert sorted(match(server, TEXTS["ice"])) == ["ants", "bees", "ice"]
        assert server.stop() == 0
    with serve(data, tiny_checkpoint) as server:  # back to FAISS
        assert match(server, TEXTS["bees"])[0] == "bees"


def test_each_collection_has_its_own_and_a_removed_one_leaves_nothing(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, milvus_server: MilvusServer
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint, vectors=milvus_server.url) as server:
        default = collections(milvus_server.url)
        assert len(default) == 1
        for name in ("first", "second"):
            assert server.request("PUT", f"/collections/{name}")[0] == 201
        assert index(server, TEXTS, "/collections/first") == 200
        assert match(server, TEXTS["ice"], "/collections/first")[0] == "ice"
        assert match(server, TEXTS["ice"], "/collections/second") == []
        assert len(collections(milvus_server.url)) == 3
        for name in ("first", "second"):
            assert server.request("DELETE", f"/collections/{name}")[0] == 204
        assert collections(milvus_server.url) == default


def test_without_the_milvus_errors_are_clear_and_nothing_is_lost(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, milvus_server: MilvusServer
) -> None:
    settings = {
        "vectors": milvus_server.url,
        "vectors_seconds": 0.5,
        "maintenance_seconds": 0.2,
    }
    with serve(tmp_path / "data", tiny_checkpoint, **settings) as server:
        assert index(server, {"ants": TEXTS["ants"]}) == 200
        assert server.request("GET", "/readyz")[1]["status"] == "ready"
        milvus_server.kill()
        wait_for(server, ["vectors"])
        for path, body in (
            ("/match", {"text": TEXTS["ants"]}),
            ("/index", {"documents": [{"id": "bees", "text": TEXTS["bees"]}]}),
        ):
            status, problem = server.request("POST", path, body)
            assert (status, problem["type"]) == (503, "/problems/vectors-unavailable")
            assert "Traceback" not in problem["detail"]
        assert server.request("GET", "/documents/ants")[0] == 200
        milvus_server.start()
        wait_for(server, [])
        assert match(server, TEXTS["bees"])[0] == "bees"
        assert match(server, TEXTS["ants"])[0] == "ants"
        assert "Traceback" not in server.log.read_text()


def test_commands_use_it_and_say_what_is_wrong_in_one_line(
    tiny_checkpoint: Path, tmp_path: Path, milvus_server: MilvusServer
) -> None:
    data, corpus = tmp_path / "data", tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in TEXTS.items())
    )
    (tmp_path / "query.txt").write_text(TEXTS["ice"])

    def run(*arguments: object, url: str) -> subprocess.CompletedProcess[str]:
        variables = {"LONGMATCH_VECTORS": url, "LONGMATCH_VECTORS_SECONDS": "1"}
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            env=environment(tiny_checkpoint) | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    asked = ("match", tmp_path / "query.txt", "--data", data, "--json")
    for url in (milvus_server.url, f"milvus://{tmp_path}/lite.db"):
        done = run("index", corpus, "--data", data, url=url)
        assert done.returncode == 0, done.stderr
        done = run(*asked, url=url)
        assert json.loads(done.stdout)["matches"][0]["id"] == "ice"
        assert "index" not in done.stderr
        assert run("doctor", data, "--sample", 0, url=url).returncode == 0
    run("index", corpus, "--data", data, url=milvus_server.url)
    [name] = collections(milvus_server.url)
    with closing(MilvusConnection(parse_milvus_url(milvus_server.url))) as connection:
        vector = [1.0] + [0.0] * 31
        connection.call("upsert", name, data=[{"id": 1, "vector": vector}])
    done = run("doctor", data, "--sample", 0, url=milvus_server.url)
    assert (done.returncode, done.stdout, "1 vectors differ" in done.stderr) == (1, "", True)
    done = run("doctor", data, "--sample", 0, "--repair", url=milvus_server.url)
    assert done.stderr.endswith("no problems found\n"), done.stderr
    milvus_server.kill()
    for arguments in (
        ("index", corpus, "--data", data),
        asked,
        ("doctor", data),
        ("serve", "--data", data),
    ):
        done = run(*arguments, url=milvus_server.url)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("error: Milvus at http://127.0.0.1")
        assert "Traceback" not in done.stderr
    done = run("index", corpus, "--data", data, url="milvus://user:secret@host/a/b")
    assert done.returncode == 2
    assert done.stderr.startswith("error: vectors: ")
    assert "secret" not in done.stderr

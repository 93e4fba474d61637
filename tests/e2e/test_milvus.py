"""A real server whose vectors and words are in a Milvus: the same requests and answers."""

import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from index.vectors.milvus.connection import MilvusConnection, parse_milvus_url
from tests.tools.milvus import MilvusServer
from tests.tools.process_fixtures import Server

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
    with serve(data, tiny_checkpoint, vectors=url, words="milvus") as server:
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
    with serve(data, tiny_checkpoint, vectors=url, words="milvus") as server:
        assert match(server, TEXTS["bees"])[0] == "bees"
        assert sorted(match(server, TEXTS["ice"])) == ["ants", "bees", "ice"]
        assert server.stop() == 0
    with serve(data, tiny_checkpoint) as server:  # back to FAISS
        assert match(server, TEXTS["bees"])[0] == "bees"


@pytest.mark.slow
def test_each_collection_has_its_own_and_a_removed_one_leaves_nothing(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, milvus_server: MilvusServer
) -> None:
    with serve(
        tmp_path / "data", tiny_checkpoint, vectors=milvus_server.url, words="milvus"
    ) as server:
        default = collections(milvus_server.url)
        assert len(default) == 2  # of vectors and of words
        for name in ("first", "second"):
            assert server.request("PUT", f"/collections/{name}")[0] == 201
        assert index(server, TEXTS, "/collections/first") == 200
        assert match(server, TEXTS["ice"], "/collections/first")[0] == "ice"
        assert match(server, TEXTS["ice"], "/collections/second") == []
        assert len(collections(milvus_server.url)) == 6
        for name in ("first", "second"):
            assert server.request("DELETE", f"/collections/{name}")[0] == 204
        assert collections(milvus_server.url) == default


@pytest.mark.slow
def test_without_the_milvus_errors_are_clear_and_nothing_is_lost(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, milvus_server: MilvusServer
) -> None:
    settings = {
        "vectors": milvus_server.url,
        "words": "milvus",
        "vectors_seconds": 0.5,
        "maintenance_seconds": 0.2,
    }
    with serve(tmp_path / "data", tiny_checkpoint, **settings) as server:
        assert index(server, {name: TEXTS[name] for name in ("ants", "ice")}) == 200
        assert server.request("GET", "/readyz")[1]["status"] == "ready"
        milvus_server.kill()
        wait_for(server, ["vectors", "lexical"])
        for path, body in (
            ("/match", {"text": TEXTS["ants"], "mode": "lexical"}),
            ("/match", {"text": TEXTS["ants"]}),
            ("/index", {"documents": [{"id": "bees", "text": TEXTS["bees"]}]}),
        ):
            status, problem = server.request("POST", path, body)
            assert (status, problem["type"]) == (503, "/problems/vectors-unavailable")
            assert "Traceback" not in problem["detail"]
        assert server.request("GET", "/documents/ants")[0] == 200
        milvus_server.start()
        wait_for(server, [])
        for mode in MODES:
            assert match(server, TEXTS["bees"], mode=mode)[0] == "bees"
            assert match(server, TEXTS["ants"], mode=mode)[0] == "ants"
        assert "Traceback" not in server.log.read_text()

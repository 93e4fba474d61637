"""A server whose engine is a Qdrant: its core in the place of the client, or nothing at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import index.engine.qdrant.engine
from benchmarks.edge_client import edge_client
from index.engine.qdrant.engine import QdrantEngine
from service.settings import Settings
from tests.kit.service_fixtures import Client, fill

URL = "qdrant://127.0.0.1:9"  # where nothing is
BODY = {"text": "Workers carry nectar to a queen."}


@pytest.mark.parametrize("mode", ["semantic", "lexical", "hybrid"])
def test_matches_are_those_of_the_process(
    make_client: Callable[..., Client],
    library: Client,
    mode: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_core(**options: Any) -> Any:
        assert (options["host"], options["port"], options["api_key"]) == ("127.0.0.1", 9, "secret")
        return edge_client(tmp_path / "core")

    monkeypatch.setattr(index.engine.qdrant.engine, "QdrantClient", open_core)
    client = fill(make_client(engine="qdrant://secret@127.0.0.1:9"))
    client.app.state.engine.default.maintenance.work()  # weighs the words of all documents
    assert client.get("/readyz").json()["degraded"] == []
    found, expected = (
        at.post("/match", json={**BODY, "mode": mode}).json()["matches"] for at in (client, library)
    )
    assert [hit["id"] for hit in found] == [hit["id"] for hit in expected]
    for hit, other in zip(found, expected, strict=True):
        assert hit["score"] == pytest.approx(other["score"], abs=1e-3)
        assert [term["term"] for term in hit["terms"]] == [term["term"] for term in other["terms"]]
    assert client.delete(f"/documents/{found[0]['id']}").status_code == 204
    left = client.post("/match", json={**BODY, "mode": mode}).json()["matches"]
    assert found[0]["id"] not in [hit["id"] for hit in left]


def test_an_engine_that_is_down_is_named_and_catches_up(
    make_client: Callable[..., Client], tmp_path: Path
) -> None:
    client = make_client(engine=URL)
    body = {"documents": [{"id": "bees", "text": "Bees carry nectar to a queen."}]}
    for refused in (client.post("/index", json=body), client.post("/match", json=BODY)):
        problem = refused.json()
        assert (refused.status_code, problem["type"]) == (503, "/problems/engine-failed")
        assert "does not answer" in problem["detail"]
        assert refused.headers["Retry-After"]
    assert client.get("/readyz").json()["degraded"] == ["engine"]
    engine = client.app.state.engine.default.data.engine
    assert isinstance(engine, QdrantEngine)
    engine.client = edge_client(tmp_path / "core")
    client.app.state.engine.default.maintenance.work()
    assert client.get("/readyz").json()["degraded"] == []
    assert [hit["id"] for hit in client.post("/match", json=BODY).json()["matches"]] == ["bees"]


@pytest.mark.parametrize("url", ["qdrant:6333", "redis://a", "qdrant://", "http://a?b=1"])
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="engine"):
        Settings(engine=url)


def test_an_engine_and_search_processes_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="LONGMATCH_SEARCH_PROCESSES: 0"):
        Settings(engine=URL, search_processes=1)

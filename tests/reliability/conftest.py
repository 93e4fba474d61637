"""Requests of which the n-th call of something fails, and what must hold afterwards.

After each failure the answer is a problem, what was acknowledged is there, what was not is not,
and the next request succeeds.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from index.doctor import examine
from service.engine import Engine
from service.errors import PROBLEM_TYPES
from tests.kit.waiting import wait_until

LINES = {"content-type": "application/x-ndjson"}
RIVER = "Rivers carry stones and sand to the sea. In spring they flood the fields. " * 9
MUSIC = "A sonata has three movements. The second of them is slow and quiet. " * 9
NEW = ("river", "music")
REQUESTS: dict[str, tuple[str, Any]] = {
    "match": ("/match", {"queries": [{"text": RIVER}, {"text": MUSIC}], "mode": "semantic"}),
    "index": (
        "/index",
        {"documents": [{"id": "river", "text": RIVER}, {"id": "music", "text": MUSIC}]},
    ),
    "compare": ("/compare", {"left": {"text": RIVER}, "right": {"text": MUSIC}}),
}
Call = Callable[..., Any]
Raise = Callable[[Call], None]


class NthCall:
    """Stands for a method of an object, and lets its n-th call fail."""

    def __init__(self, owner: Any, name: str, failure: Raise) -> None:
        self._owner, self._name, self._failure = owner, name, failure
        self._method: Call = getattr(owner, name)
        self.left = 0

    @contextmanager
    def fails(self, number: int) -> Iterator[None]:
        self.left = number
        setattr(self._owner, self._name, self)
        try:
            yield
        finally:
            setattr(self._owner, self._name, self._method)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self._failure(self._method)
        return self._method(*arguments, **named)


def run_out_of_memory(_: Call) -> None:
    raise MemoryError("cannot allocate 17 bytes")


@pytest.fixture
def client(make_client: Callable[..., Any]) -> Any:
    """Return a client of an engine that caches no vectors and encodes one block after the other."""
    return make_client(block_cache_bytes=0, threads=1)


def send(client: Any, name: str) -> httpx.Response:
    path, body = REQUESTS[name]
    response: httpx.Response = client.post(path, json=body)
    return response


def failed(response: httpx.Response, *names: str) -> dict[str, Any]:
    """Check that it is a clear problem of the service, without a word of its inside."""
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    name = problem["type"].removeprefix("/problems/")
    assert name in names
    assert response.status_code == PROBLEM_TYPES[name].status, response.text
    assert problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]
    for word in ("Traceback", 'File "', "onnxruntime", "Error", "sqlite", "17 bytes"):
        assert word not in response.text
    return problem


def stored(client: Any) -> set[str]:
    """Return which of the new documents are stored, and check that exactly those are found."""
    there = {name for name in NEW if client.get(f"/documents/{name}").status_code == 200}
    body = {"text": RIVER, "top_k": 100, "mode": "semantic"}
    response = client.post("/match", json=body)
    assert response.status_code == 200, response.text
    found = {match["id"] for match in response.json()["matches"]}
    assert found & set(NEW) == there
    engine = client.app.state.engine
    assert len(engine.default.data.index) == len(engine.default.data.store)
    return there


def sound(client: Any) -> None:
    """Check that the engine is ready, at rest, and that the doctor finds nothing."""
    engine: Engine = client.app.state.engine
    assert client.get("/readyz").json()["status"] == "ready"
    assert engine.scheduler.queue.queued_tokens == 0
    assert engine.admission.active == 0
    assert examine(engine.default.data.path, engine.encoder.checkpoint) == ()


def lines(count: int) -> bytes:
    texts = (RIVER, MUSIC)
    documents = [{"id": NEW[n], "text": texts[n]} for n in range(2)]
    documents += [{"id": f"more {n}", "text": f"{n}. {MUSIC}"} for n in range(count - 2)]
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def ended(client: Any, response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 202, response.text
    job: dict[str, Any] = {}

    def is_over() -> bool:
        job.update(client.get(response.headers["location"]).json())
        return job["state"] not in ("waiting", "running")

    wait_until(is_over, job)
    return job


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs that wait after a failure be tried again at once."""
    monkeypatch.setattr("service.uploads.logic._RETRY_SECONDS", 0.02)
    monkeypatch.setattr("service.uploads.logic._IDLE_SECONDS", 0.02)

"""Redis dead, paused, flushed or full at any time: matches are answered, and it is reported."""

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.engine import Engine

TEXT = "Insects live in colonies and carry food home. " * 20
FAILURES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None]]] = {
    "dead": (lambda server: server.kill(), lambda server: server.start()),
    "paused": (lambda server: server.pause(), lambda server: server.resume()),
    "full": (lambda server: server.fill(), lambda server: server.make_room()),
}


@pytest.fixture
def client(make_client: Any, redis_server: Any, texts: dict[str, str]) -> Any:
    client = make_client(redis_url=redis_server.url, rate_limit_tokens_per_minute=10_000_000)
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def wait_until_ready_is(client: Any, status: str, degraded: list[str]) -> None:
    deadline = time.monotonic() + 120
    while True:
        response = client.get("/readyz")
        assert response.status_code == 200
        answer = response.json()
        if (answer["status"], answer["degraded"]) == (status, degraded):
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.serial
def test_matches_go_on_and_are_the_same_and_it_recovers(
    client: Any, redis_server: Any, failure: str
) -> None:
    fail, repair = FAILURES[failure]
    engine: Engine = client.app.state.engine
    before = client.post("/match", json={"text": TEXT}).json()["matches"]
    wait_until_ready_is(client, "ready", [])
    fail(redis_server)
    for number in range(3):
        started = time.monotonic()
        response = client.post("/match", json={"text": TEXT})
        assert time.monotonic() - started < 30
        assert response.status_code == 200
        assert response.json()["matches"] == before
        body = {"documents": [{"id": f"new {number}", "text": f"Document {number} is new."}]}
        assert client.post("/index", json=body).status_code == 200
        assert client.delete(f"/documents/new {number}").status_code == 204
    wait_until_ready_is(client, "degraded", ["redis"])
    assert engine.metrics.registry.get_sample_value("longmatch_redis_up") == 0
    repair(redis_server)
    wait_until_ready_is(client, "ready", [])
    assert client.post("/match", json={"text": TEXT}).json()["matches"] == before


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_planted_vectors_and_counters_change_no_match(
    client: Any, redis_server: Any, value: float
) -> None:
    before = client.post("/match", json={"text": TEXT}).json()["matches"]
    for key in redis_server.client.keys("longmatch:block:*"):
        width = (len(redis_server.client.get(key)) - 4) // 4
        planted = np.full(width, value, dtype="<f4").tobytes()
        redis_server.client.set(key, planted + zlib.crc32(planted).to_bytes(4, "big"))
    for key in redis_server.client.keys("longmatch:rate:*"):
        redis_server.client.set(key, "inf")
    response = client.post("/match", json={"text": TEXT})
    assert response.status_code == 200
    assert response.json()["matches"] == before


def test_failures_at_any_moment_of_a_stream_of_matches(client: Any, redis_server: Any) -> None:
    before = client.post("/match", json={"text": TEXT}).json()["matches"]
    stop = threading.Event()

    def disturb() -> None:
        steps = [redis_server.pause, redis_server.resume, redis_server.flush, redis_server.fill]
        steps += [redis_server.make_room, redis_server.kill, redis_server.start]
        while not stop.is_set():
            for step in steps:
                step()
                stop.wait(0.1)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(40):
            response = client.post("/match", json={"text": TEXT})
            assert response.status_code == 200
            assert response.json()["matches"] == before
    finally:
        stop.set()
        thread.join()
    wait_until_ready_is(client, "ready", [])

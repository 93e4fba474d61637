"""Redis may fail in any way at any time: calls stay fast, matches go on, and it recovers."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from service.engine import Engine
from service.errors import SettingsError
from service.metrics import Metrics
from service.redis_client import RedisClient
from tests.kit.waiting import wait_until

TEXT = "Insects live in colonies and carry food home. " * 20
FAILURES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None]]] = {
    "dead": (lambda server: server.kill(), lambda server: server.start()),
    "paused": (lambda server: server.pause(), lambda server: server.resume()),
    "full": (lambda server: server.fill(), lambda server: server.make_room()),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_costs_one_time_out_and_it_recovers(
    redis: RedisClient, redis_server: Any, failure: str
) -> None:
    fail, repair = FAILURES[failure]
    assert redis.call(lambda client: client.set("a", 1)) is True
    fail(redis_server)
    started = time.monotonic()
    calls = [redis.call(lambda client: client.set("a", 2)) for _ in range(500)]
    assert time.monotonic() - started < 20
    assert calls == [None] * 500
    assert not redis.available
    repair(redis_server)
    wait_until(lambda: redis.available)
    assert redis.call(lambda client: client.set("a", 3)) is True


def test_failure_and_repair_are_noticed_without_a_call(
    redis: RedisClient, redis_server: Any
) -> None:
    redis_server.fill()
    wait_until(lambda: not redis.available)
    redis_server.kill()
    later = RedisClient(redis_server.url, Metrics())
    assert not later.available
    redis_server.start()
    wait_until(lambda: later.available)
    later.close()


def test_failures_are_counted_and_logged_without_the_password(
    redis_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    url = redis_server.url.replace("redis://", "redis://:swordfish@")
    redis_server.kill()
    with caplog.at_level(logging.WARNING):
        redis = RedisClient(url, metrics)
        redis.close()
    assert "ConnectionError" in caplog.text
    assert "swordfish" not in caplog.text
    assert metrics.registry.get_sample_value("longmatch_redis_up") == 0


def test_a_password_may_have_any_character(redis_server: Any) -> None:
    password = "p@ss/w:rd?#&% é"
    redis_server.client.config_set("requirepass", password)
    written = password.replace("%", "%25")
    redis = RedisClient(redis_server.url.replace("redis://", f"redis://:{written}@"), Metrics())
    try:
        assert redis.available
    finally:
        redis.close()


def test_a_url_that_is_not_of_redis_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="redis_url") as caught:
        RedisClient("swordfish@somewhere", Metrics())
    assert "swordfish" not in str(caught.value)


@pytest.fixture
def client(make_client: Any, redis_server: Any, texts: dict[str, str]) -> Any:
    client = make_client(redis_url=redis_server.url, rate_limit_tokens_per_minute=10_000_000)
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def wait_until_ready_is(client: Any, status: str, degraded: list[str]) -> None:
    def reached() -> bool:
        response = client.get("/readyz")
        assert response.status_code == 200
        answer = response.json()
        return (answer["status"], answer["degraded"]) == (status, degraded)

    wait_until(reached)


@pytest.mark.parametrize("failure", FAILURES)
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

"""Redis may fail in any way at any time: calls stay fast, and the client recovers by itself."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.errors import SettingsError
from service.metrics import create_metrics
from service.redis_client import RedisClient


@pytest.fixture
def redis(redis_server: Any) -> Iterator[RedisClient]:
    opened = RedisClient(redis_server.url, create_metrics())
    yield opened
    opened.close()


def wait_until_available_is(available: bool, redis: RedisClient) -> None:
    deadline = time.monotonic() + 120
    while redis.available is not available:
        assert time.monotonic() < deadline, f"does not become {available}"
        time.sleep(0.02)


FAILURES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None]]] = {
    "dead": (lambda server: server.kill(), lambda server: server.start()),
    "paused": (lambda server: server.pause(), lambda server: server.resume()),
    "full": (lambda server: server.fill(), lambda server: server.make_room()),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.serial
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
    wait_until_available_is(True, redis)
    assert redis.call(lambda client: client.set("a", 3)) is True


def test_a_failure_is_noticed_without_a_call(redis: RedisClient, redis_server: Any) -> None:
    redis_server.fill()
    wait_until_available_is(False, redis)


def test_a_redis_that_is_down_at_the_start_is_used_later(redis_server: Any) -> None:
    redis_server.kill()
    redis = RedisClient(redis_server.url, create_metrics())
    assert not redis.available
    redis_server.start()
    wait_until_available_is(True, redis)
    redis.close()


def test_failures_are_counted_and_logged_without_the_password(
    redis_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = create_metrics()
    url = redis_server.url.replace("redis://", "redis://:swordfish@")
    redis_server.kill()
    with caplog.at_level(logging.WARNING):
        redis = RedisClient(url, metrics)
        redis.close()
    assert "ConnectionError" in caplog.text
    assert "swordfish" not in caplog.text
    assert metrics.registry.get_sample_value("longmatch_redis_up") == 0


def test_a_url_that_is_not_of_redis_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="redis_url") as caught:
        RedisClient("swordfish@somewhere", create_metrics())
    assert "swordfish" not in str(caught.value)

"""Redis may fail in every way, at any moment: a call is quick, and it recovers by itself."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.errors import SettingsError
from service.limits.redis_client import RedisClient
from service.metrics import create_metrics


@pytest.fixture
def link(redis_server: Any) -> Iterator[RedisClient]:
    opened = RedisClient(redis_server.url, create_metrics())
    yield opened
    opened.close()


def becomes(wanted: bool, link: RedisClient) -> None:
    deadline = time.monotonic() + 10
    while link.available is not wanted:
        assert time.monotonic() < deadline, f"does not become {wanted}"
        time.sleep(0.02)


FAILURES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None]]] = {
    "dead": (lambda server: server.kill(), lambda server: server.start()),
    "paused": (lambda server: server.pause(), lambda server: server.resume()),
    "full": (lambda server: server.fill(), lambda server: server.make_room()),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_costs_one_time_out_and_it_recovers(
    link: RedisClient, redis_server: Any, failure: str
) -> None:
    fail, repair = FAILURES[failure]
    assert link.call(lambda client: client.set("a", 1)) is True
    fail(redis_server)
    started = time.monotonic()
    calls = [link.call(lambda client: client.set("a", 2)) for _ in range(50)]
    assert time.monotonic() - started < 1
    assert calls == [None] * 50
    assert not link.available
    repair(redis_server)
    becomes(True, link)
    assert link.call(lambda client: client.set("a", 3)) is True


def test_it_is_noticed_without_a_call(link: RedisClient, redis_server: Any) -> None:
    redis_server.fill()
    becomes(False, link)


def test_a_redis_that_is_flushed_goes_on(link: RedisClient, redis_server: Any) -> None:
    link.call(lambda client: client.set("a", 1))
    redis_server.flush()
    assert link.call(lambda client: client.exists("a")) == 0
    assert link.available


def test_a_redis_that_is_not_there_at_the_start_is_waited_for(redis_server: Any) -> None:
    redis_server.kill()
    link = RedisClient(redis_server.url, create_metrics())
    assert not link.available
    redis_server.start()
    becomes(True, link)
    link.close()


def test_what_happens_is_counted_and_logged_without_the_password(
    redis_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = create_metrics()
    url = redis_server.url.replace("redis://", "redis://:swordfish@")
    redis_server.kill()
    with caplog.at_level(logging.WARNING):
        link = RedisClient(url, metrics)
        link.close()
    assert "ConnectionError" in caplog.text
    assert "swordfish" not in caplog.text
    assert metrics.registry.get_sample_value("longmatch_redis_up") == 0


def test_an_address_that_is_none_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="redis_url") as caught:
        RedisClient("swordfish@somewhere", create_metrics())
    assert "swordfish" not in str(caught.value)

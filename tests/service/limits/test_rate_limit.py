"""Rates: one contract for counting in this process and in Redis."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.limits import RateLimiter, client_name
from service.metrics import Metrics
from service.redis_client import RedisClient

MakeLimiter = Callable[[int], RateLimiter]


@pytest.fixture(params=["local", "redis"])
def make_limiter(request: pytest.FixtureRequest) -> Iterator[MakeLimiter]:
    if request.param == "local":
        yield RateLimiter
        return
    redis = RedisClient(request.getfixturevalue("redis_server").url, Metrics())
    yield lambda limit: RateLimiter(limit, redis)
    redis.close()


def test_a_minutes_tokens_may_be_asked_for_and_no_more(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(600)
    for left in (400, 200, 0):
        status = limiter.spend("a", 200)
        assert status.admitted
        assert status.limit == 600
        assert left <= status.remaining <= left + 20  # it fills while the test runs
        assert status.retry_after == 0
    refused = limiter.spend("a", 200)
    assert not refused.admitted
    assert 15 <= refused.retry_after <= 20
    assert 55 <= refused.reset_seconds <= 60


def test_a_refusal_costs_nothing(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(600)
    limiter.spend("a", 500)
    assert not limiter.spend("a", 300).admitted
    assert limiter.spend("a", 100).admitted
    assert limiter.spend("b", 600).admitted  # clients do not pay for one another


def test_a_request_of_more_than_a_minute_is_admitted_once(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(100)
    status = limiter.spend("a", 250)
    assert status.admitted
    assert status.remaining == 0
    assert status.reset_seconds == 150
    assert 85 <= limiter.spend("a", 1).retry_after <= 91


def test_threads_spend_no_token_twice(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(100)
    admitted: list[bool] = []

    def ask() -> None:
        for _ in range(10):
            admitted.append(limiter.spend("a", 5).admitted)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 20 <= sum(admitted) <= 21


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 300)), max_size=40))
def test_over_any_time_no_more_than_bucket_and_refill(requests: list[tuple[float, int]]) -> None:
    now = 0.0
    limiter = RateLimiter(120, clock=lambda: now)
    spent = 0
    for pause, tokens in requests:
        now += pause
        status = limiter.spend("a", tokens)
        if status.admitted:
            # a request that is larger than the bucket is let in when it is full
            assert spent + min(tokens, 120) <= 120 + 2 * now + 1e-3
            spent += tokens
        else:
            now += status.retry_after
            assert limiter.spend("a", tokens).admitted
            spent += tokens


@pytest.mark.parametrize("planted", ["inf", "-inf", "nan", "1e300", "9" * 400 + ".0", "x", "-5.0"])
def test_a_planted_value_counts_as_missing(
    redis: RedisClient, redis_server: Any, planted: str
) -> None:
    limiter = RateLimiter(100, redis)
    redis_server.client.set("longmatch:rate:a", planted)
    assert limiter.spend("a", 60).remaining == 40
    assert not limiter.spend("a", 60).admitted
    assert redis.available


def test_servers_share_what_redis_counts_and_count_alone_without(
    redis: RedisClient, redis_server: Any
) -> None:
    first, other = (RateLimiter(100, redis) for _ in range(2))
    assert first.spend("a", 60).admitted
    assert not other.spend("a", 60).admitted
    redis_server.kill()
    assert first.spend("b", 60).admitted
    assert not first.spend("b", 60).admitted
    assert not redis.available


def test_a_client_is_an_address_or_an_ipv6_network() -> None:
    assert client_name("10.0.0.1") == client_name("::ffff:10.0.0.1") == "address:10.0.0.1"
    assert client_name("2001:db8::1") == client_name("2001:db8::ffff:2") != client_name("::1")
    assert client_name("2001:db8:0:1::1") != client_name("2001:db8::1")
    assert client_name("") == "address:"


def test_what_is_owed_is_spent_in_any_case(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(100)
    assert limiter.spend("a", 100).admitted
    assert limiter.spend("a", 150, owed=True).admitted
    assert 85 <= limiter.spend("a", 1).retry_after <= 92

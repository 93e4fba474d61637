"""The queue of jobs, with a real Redis and without: what it loses is only a hint."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.errors import SettingsError
from service.jobs.queue import JobQueue


class Seen:
    """What a queue has run, and what it said of Redis."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.redis: list[bool] = []


@pytest.fixture
def seen() -> Seen:
    return Seen()


def make_queue(seen: Seen, url: str | None, name: str = "one") -> JobQueue:
    return JobQueue(name, url, seen.ran.append, seen.redis.append)


def drain(queue: JobQueue) -> None:
    while queue.run_next():
        pass


def test_ids_come_out_in_their_order_without_redis(seen: Seen) -> None:
    queue = make_queue(seen, None)
    assert not queue.run_next()
    queue.push(["a", "b", "c"])
    drain(queue)
    assert seen.ran == ["a", "b", "c"]
    assert seen.redis == []
    assert not queue.degraded


def test_redis_holds_the_ids_as_json_and_another_process_finds_them(
    seen: Seen, redis_server: Any
) -> None:
    make_queue(seen, redis_server.url).push(["a", "b"])
    make_queue(seen, redis_server.url, "another").push(["x"])
    kept = redis_server.client.lrange("huey.redis.one", 0, -1)
    assert [json.loads(message)["args"] for message in kept] == [["b"], ["a"]]
    drain(make_queue(seen, redis_server.url))
    assert seen.ran == ["a", "b"]
    assert all(seen.redis)


def test_what_an_earlier_process_left_is_forgotten_when_asked(
    seen: Seen, redis_server: Any
) -> None:
    queue = make_queue(seen, redis_server.url)
    queue.push(["a"])
    queue.clear()
    assert not queue.run_next()


@pytest.mark.parametrize(
    "message",
    [
        b"\x80\x04K\x01.",
        b"not JSON",
        b"{}",
        b"[]",
        b'{"id": "1", "name": "os.system", "args": ["a"]}',
    ],
)
def test_what_is_no_message_of_ours_is_dropped_and_never_run(
    seen: Seen, redis_server: Any, message: bytes
) -> None:
    queue = make_queue(seen, redis_server.url)
    redis_server.client.lpush("huey.redis.one", message)
    queue.push(["a"])
    drain(queue)
    assert seen.ran == ["a"]


@pytest.mark.parametrize("harm", ["kill", "pause", "fill"])
def test_while_redis_fails_the_process_goes_on_and_comes_back_to_it(
    seen: Seen, redis_server: Any, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.jobs.queue._AVOIDED_SECONDS", 0.0)
    queue = make_queue(seen, redis_server.url)
    undo = harmed(redis_server, harm)
    queue.push(["a", "b"])
    assert queue.degraded
    drain(queue)
    assert seen.ran == ["a", "b"]
    undo()
    queue.push(["c"])
    assert not queue.degraded
    assert redis_server.client.llen("huey.redis.one") == 1
    drain(queue)
    assert seen.ran == ["a", "b", "c"]
    assert (seen.redis[0], seen.redis[-1]) == (False, True)


def harmed(server: Any, harm: str) -> Callable[[], object]:
    """Harm a Redis and return what undoes it."""
    if harm == "kill":
        server.kill()
        return server.start
    if harm == "pause":
        server.pause()
        return server.resume
    server.client.config_set("maxmemory", 1)
    return lambda: server.client.config_set("maxmemory", 0)


def test_a_flush_loses_hints_alone(seen: Seen, redis_server: Any) -> None:
    queue = make_queue(seen, redis_server.url)
    queue.push(["a"])
    redis_server.client.flushall()
    assert not queue.run_next()
    queue.push(["a"])  # as the jobs do with all that has not ended
    drain(queue)
    assert seen.ran == ["a"]


def test_an_address_that_is_none_of_redis_is_refused_without_being_shown(seen: Seen) -> None:
    with pytest.raises(SettingsError, match="redis_url") as caught:
        make_queue(seen, "http://user:secret@localhost")
    assert "secret" not in str(caught.value)

"""Standing queries of a real server: events as they come, after kills, to who listens."""

import http.client
import json
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from service.startup import MAX_LISTENERS
from tests.kit.tiers import Tier
from tests.kit.waiting import TIMEOUT_S, wait_until
from tests.kit.webhook_receiver import Receiver, status

QUERY = {"text": "Bees live in hives. Each hive has a queen.", "min_score": -1}
PATH = "/standing-queries"


def make(server: Any, **body: Any) -> str:
    status, made = server.request("POST", PATH, {**QUERY, **body})
    assert status == 201, made
    return str(made["id"])


def put(server: Any, *names: str, **fields: Any) -> None:
    documents = [{"id": name, "text": f"A text on {name}.", **fields} for name in names]
    status, answer = server.request("POST", "/index", {"documents": documents})
    assert status == 200, answer


def events(server: Any, query_id: str) -> list[dict[str, Any]]:
    status, page = server.request("GET", f"{PATH}/{query_id}/events?limit=1000")
    assert status == 200, page
    return list(page["events"])


def wait_for_events(server: Any, query_id: str, number: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(events(server, query_id)) >= number)
    return events(server, query_id)


class Listener:
    """A client of server-sent events."""

    def __init__(self, server: Any, path: str, last: int | None = None) -> None:
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()

    def take(self, number: int) -> list[dict[str, Any]]:
        """Return the next events; fewer where the stream ends."""
        taken: list[dict[str, Any]] = []
        fields: dict[str, str] = {}
        while len(taken) < number and (line := self.response.readline()):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                assert fields["event"] == "match"
                taken.append(json.loads(fields["data"]))
                assert taken[-1]["number"] == int(fields["id"])
                fields = {}
        return taken

    def close(self) -> None:
        self._connection.close()


def listen(server: Any, path: str, last: int | None = None) -> closing[Listener]:
    return closing(Listener(server, path, last))


def can_listen(server: Any) -> bool:
    with listen(server, f"{PATH}/events") as listener:
        return bool(listener.response.status == 200)


@pytest.mark.slow
def test_a_stream_ends_with_what_it_is_of(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Nothing waits for it: neither who removes a collection nor who stops the server."""
    with (
        serve(tmp_path / "data", tiny_checkpoint, drain_seconds=1000) as server,
        ExitStack() as others,
    ):
        assert server.request("PUT", "/collections/papers")[0] == 201
        with (
            listen(server, "/collections/papers/standing-queries/events") as removed,
            listen(server, f"{PATH}/events") as stopped,
        ):
            assert (removed.response.status, stopped.response.status) == (200, 200)
            kind = stopped.response.getheader("content-type")
            assert kind == "text/event-stream; charset=utf-8"
            made = make(server)
            put(server, "a", "b")
            first, second = stopped.take(2)
            assert [first, second] == wait_for_events(server, made, 2)
            with listen(server, f"{PATH}/events", first["number"]) as resumed:
                assert resumed.take(1) == [second]
            for _ in range(MAX_LISTENERS - 2):
                others.enter_context(listen(server, f"{PATH}/events"))
            with listen(server, f"{PATH}/events") as refused:
                assert refused.response.status == 503
                assert json.loads(refused.response.read())["type"] == "/problems/overloaded"
            assert server.request("DELETE", "/collections/papers")[0] == 204
            assert removed.take(1) == []
            server.process.send_signal(signal.SIGTERM)
            assert stopped.take(1) == []
            assert server.process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)
        assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_who_left_gives_the_place_back(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        for _ in range(2 * MAX_LISTENERS):
            wait_until(lambda: can_listen(server))
        assert server.request("HEAD", f"{PATH}/events")[0] == 200


def test_killed_at_any_moment_every_version_is_told_once(
    serve: Callable[..., Any],
    longmatch_process: Callable[..., Any],
    tiny_checkpoint: Path,
    tmp_path: Path,
    tier: Tier,
) -> None:
    """What was acknowledged; and what `longmatch index` stores while no server runs."""
    data, moment = tmp_path / "data", random.Random(tier.seed)
    expected: list[str] = []
    made = ""
    for run in range(8 if tier.sweep else 1):  # a page holds 1,000 events
        with serve(data, tiny_checkpoint) as server:
            if not run:
                made = make(server, mode="semantic")
                make(server, mode="lexical")
            for part in range(3):
                names = [f"{run} {part} {number}" for number in range(40)]
                put(server, *names)
                expected += names
            time.sleep(moment.uniform(0, 0.2))
            server.stop(signal.SIGKILL)
        lines = tmp_path / f"{run}.jsonl"
        lines.write_text(json.dumps({"id": f"offline {run}", "text": f"Offline {run}."}))
        ended = longmatch_process("index", lines, "--data", data, checkpoint=tiny_checkpoint)
        assert ended.returncode == 0, ended.stderr
        expected.append(f"offline {run}")
    with serve(data, tiny_checkpoint) as server:
        found = wait_for_events(server, made, len(expected))
        put(server, "last")
        found = wait_for_events(server, made, len(expected) + 1)
    assert sorted(event["document"] for event in found) == sorted([*expected, "last"])


@pytest.mark.slow
def test_killed_before_and_during_a_delivery_nothing_is_lost(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """An event that was being delivered comes again, under the same id; the log has no secret."""
    data, gate = tmp_path / "data", threading.Event()

    def hold(handler: BaseHTTPRequestHandler) -> None:
        gate.wait(TIMEOUT_S)
        status(204)(handler)

    with Receiver() as receiver:
        receiver.answers = [hold, status(204)]
        webhook = {"url": f"http://localhost:{receiver.port}/path?token=hidden"}
        settings = {"webhook_hosts": "localhost"}
        with serve(data, tiny_checkpoint, **settings) as server:
            made = make(server, webhook=webhook, text="A plan of the merger.")
            put(server, "a")
            receiver.take(1)
            put(server, "b")
            server.stop(signal.SIGKILL)
            logs = server.log.read_text()
        gate.set()
        with serve(data, tiny_checkpoint, **settings) as server:
            messages = receiver.take(2)
            put(server, "c")
            messages = receiver.take(1)
            shown = server.request("GET", f"{PATH}/{made}")[1]
            logs += server.log.read_text()
    assert [message.document for message in messages] == ["a", "a", "b", "c"]
    assert len({message.headers["webhook-id"] for message in messages}) == 3
    said = logs + json.dumps(shown)
    assert [word for word in ("hidden", "whsec", "merger") if word in said] == []

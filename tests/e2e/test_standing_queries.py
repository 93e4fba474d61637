"""Standing queries of a real server: events after kills."""

import json
import random
import signal
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

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

"""Feedback to the real server, which is killed in the middle of writing."""

import signal
import threading
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tiers import Tier
from tests.kit.waiting import TIMEOUT_S

DOCUMENTS = 30
SENDERS = 4


def give(server: Any, query: str, match: str, grade: int) -> tuple[int, Any]:
    body = {"query": {"text": query}, "match": match, "grade": grade}
    answer: tuple[int, Any] = server.request("POST", "/feedback", body)
    return answer


def send(
    server: Any, kill: int, sender: int, acknowledged: dict[str, int], enough: threading.Event
) -> None:
    for number in range(10_000):
        query = f"What is {kill} of {sender} and {number}?"
        try:
            status, verdict = give(server, query, f"d{number % DOCUMENTS}", number % 4)
        except (OSError, HTTPException):
            return
        assert status == 200
        acknowledged[verdict["id"]] = verdict["grade"]
        if len(acknowledged) > 40 * (kill + 1):
            enough.set()


@pytest.mark.slow
def test_what_was_answered_is_kept_when_the_server_is_killed(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, tier: Tier
) -> None:
    data = tmp_path / "data"
    acknowledged: dict[str, int] = {}
    for kill in range(3 if tier.sweep else 1):
        with serve(data, tiny_checkpoint) as server:
            if kill == 0:
                texts = [{"id": f"d{n}", "text": f"River {n}."} for n in range(DOCUMENTS)]
                assert server.request("POST", "/index", {"documents": texts})[0] == 200
            stored = server.request("GET", "/feedback?limit=1000")[1]["feedback"]
            found = {row["id"]: row["grade"] for row in stored}
            # One more of each sender may have been stored when its answer was cut off.
            assert acknowledged.items() <= found.items()
            assert len(found) <= len(acknowledged) + SENDERS * kill
            enough = threading.Event()
            senders = [
                threading.Thread(target=send, args=(server, kill, number, acknowledged, enough))
                for number in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            assert enough.wait(TIMEOUT_S)
            server.stop(signal.SIGKILL)
            for sender in senders:
                sender.join()
    with serve(data, tiny_checkpoint) as server:
        stored = server.request("GET", "/feedback?limit=1000")[1]["feedback"]
        assert acknowledged.items() <= {row["id"]: row["grade"] for row in stored}.items()
        assert server.request("GET", "/readyz")[1]["degraded"] == []

"""Uploads to the real server: killed in the middle, while Redis fails, and while matches run."""

import gzip
import http.client
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tiers import Tier
from tests.kit.waiting import TIMEOUT_S, wait_until

WORDS = ["river", "stone", "music", "winter", "letter", "engine", "forest", "harbour"]
UNFINISHED = ("waiting", "running")


def corpus(documents: int) -> bytes:
    draw = random.Random(5)
    texts = (" ".join(draw.choices(WORDS, k=draw.randrange(20, 120))) for _ in range(documents))
    return b"".join(
        json.dumps({"id": f"d{number}", "text": f"{text} {number}."}).encode() + b"\n"
        for number, text in enumerate(texts)
    )


def send(server: Any, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Send lines; return the status and the response."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=TIMEOUT_S)
    with closing(connection):
        connection.request(
            "POST", "/index", body, {"Content-Type": "application/x-ndjson", **(headers or {})}
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def job_of(server: Any, job_id: str) -> dict[str, Any]:
    return dict(server.request("GET", f"/jobs/{job_id}")[1])


def wait_for_end(server: Any, job_id: str) -> dict[str, Any]:
    wait_until(lambda: job_of(server, job_id)["state"] not in UNFINISHED)
    return job_of(server, job_id)


def test_a_job_killed_repeatedly_ends_as_if_it_had_not_been(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, tier: Tier
) -> None:
    documents, kills = (2_500, 3) if tier.sweep else (300, 1)
    data = tmp_path / "data"
    body = corpus(documents) + b"not JSON\n"
    with serve(data, tiny_checkpoint, threads=1) as server:
        status, answer = send(server, gzip.compress(body), {"Content-Encoding": "gzip"})
        assert (status, answer["accepted"]) == (202, documents + 1)
        server.stop(signal.SIGKILL)
    seen = 0
    for _ in range(kills):
        with serve(data, tiny_checkpoint, threads=1) as server:
            before = seen
            # It continues by itself, from where it was.
            wait_until(lambda before=before: job_of(server, answer["id"])["indexed"] > before)
            job = job_of(server, answer["id"])
            assert job["state"] in UNFINISHED
            seen = job["indexed"]
            server.stop(signal.SIGKILL)
    assert 0 < seen < documents
    with serve(data, tiny_checkpoint) as server:
        job = wait_for_end(server, answer["id"])
        counts = {name: job[name] for name in ("state", "accepted", "indexed", "failed")}
        assert counts == {
            "state": "done",
            "accepted": documents + 1,
            "indexed": documents,
            "failed": 1,
        }
        assert [error["line"] for error in job["errors"]] == [documents + 1]
        assert server.request("GET", "/readyz")[1]["documents"] == documents
        assert list((data / "uploads").iterdir()) == []
        assert server.request("POST", f"/jobs/{answer['id']}/cancel")[0] == 409


def test_killed_while_it_is_sent_nothing_of_it_is_left(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with serve(data, tiny_checkpoint) as server:

        def half() -> Iterator[bytes]:
            yield corpus(400) * 40
            wait_until(lambda: any((data / "uploads").glob("*")))
            server.stop(signal.SIGKILL)
            yield b"\n"

        with pytest.raises((OSError, http.client.HTTPException)):
            send(server, half())
        assert list((data / "uploads").iterdir()) != []
    with serve(data, tiny_checkpoint) as server:
        assert server.request("GET", "/jobs")[1] == {"jobs": []}
        assert list((data / "uploads").iterdir()) == []


def test_an_upload_whose_client_leaves_is_removed(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with serve(data, tiny_checkpoint) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.putrequest("POST", "/index")
        connection.putheader("Content-Type", "application/x-ndjson")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(corpus(100))
        wait_until(lambda: any((data / "uploads").iterdir()))
        connection.close()
        wait_until(lambda: not any((data / "uploads").iterdir()))
        assert server.request("GET", "/jobs")[1] == {"jobs": []}
        assert "Traceback" not in server.log.read_text()

"""Real servers that share one PostgreSQL: what one is given, the others find, at once."""

import json
import os
import random
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.test_milvus import MODES, TEXTS, index, match
from tests.tools.postgresql import PostgreSQLServer, run_postgresql
from tests.tools.process_fixtures import COMMAND, Server
from tests.tools.tiers import Tier

Serve = Callable[..., Any]
STORE = {"store_seconds": 1, "maintenance_seconds": 3600}


@contextmanager
def stopped(database: PostgreSQLServer) -> Iterator[None]:
    """Let no process of a server run during a block."""
    processes = database.processes()
    try:
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        yield
    finally:
        for one in processes:
            os.kill(one, signal.SIGCONT)


def wait_for_readyz(server: Server, status: int, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, answer = server.request("GET", "/readyz")
        if found == status:
            return answer
        time.sleep(0.05)
    pytest.fail(f"/readyz says {found}: {answer}")


def metric(server: Server, name: str) -> float:
    metrics: bytes = server.request("GET", "/metrics")[1]
    begins = f"longmatch_{name}{{".encode()
    (line,) = (one for one in metrics.splitlines() if one.startswith(begins))
    return float(line.rpartition(b" ")[2])


def test_what_one_server_stores_the_other_finds_at_once(
    serve: Serve, tiny_checkpoint: Path, tmp_path: Path, postgresql_server: PostgreSQLServer
) -> None:
    shared = {"store": postgresql_server.url, "store_schema": f"e{uuid4().hex}", **STORE}
    with ExitStack() as servers:
        one, other = (
            servers.enter_context(
                serve(tmp_path / name, tiny_checkpoint, search_processes=number, **shared)
            )
            for number, name in enumerate(("one", "other"))
        )
        wait_for_metric(other, "longmatch_search_processes", 1)
        for writer, reader in ((one, other), (other, one)):
            assert index(writer, TEXTS) == 200
            for mode in MODES:
                assert match(reader, TEXTS["bees"], mode=mode)[0] == "bees"
            assert metric(reader, "index_documents") == len(TEXTS)
            short = {"field": "length", "range": {"lt": len(TEXTS["ants"])}}
            assert set(match(reader, TEXTS["ants"], filter=short)) == {"bees", "ice"}
            copy = [{"id": "copy", "text": TEXTS["ice"], "title": "Ice"}]
            assert writer.request("POST", "/index", {"documents": copy})[0] == 200
            family = reader.request("GET", "/documents/copy/family")[1]["documents"]
            assert [one["id"] for one in family] == ["copy", "ice"]
            copy[0]["title"] = "Ice again"
            assert writer.request("POST", "/index", {"documents": copy})[0] == 200
            assert reader.request("GET", "/documents/copy")[1]["title"] == "Ice again"
            for name in ("copy", *TEXTS):
                assert writer.request("DELETE", f"/documents/{name}")[0] == 204
                assert name not in match(reader, TEXTS.get(name, TEXTS["ice"]))
        wait_for_metric(other, "longmatch_search_process_left_total", 0)
        verdict = {"query": {"text": TEXTS["ants"]}, "match": "ants", "grade": 3}
        assert index(one, TEXTS) == 200
        query = {"text": TEXTS["ants"], "min_score": 0.5}
        for method, path, body, setting in (
            ("POST", "/feedback", verdict, "max_feedback"),
            ("POST", "/standing-queries", query, "max_standing_queries"),
            ("PUT", "/collections/new", None, "max_collections"),
        ):
            status, refused = one.request(method, path, body)
            assert (status, setting in refused["detail"]) == (409, True), refused
            assert refused["type"].startswith("/problems/")


def wait_for_metric(server: Server, name: str, value: float, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while f"{name} {value:.1f}" not in server.request("GET", "/metrics")[1].decode().splitlines():
        assert time.monotonic() < deadline, f"{name} is not {value}"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_database_that_is_killed_makes_servers_unready_until_it_is_back(
    serve: Serve, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with (
        run_postgresql() as database,
        serve(tmp_path / "data", tiny_checkpoint, store=database.url, **STORE) as server,
    ):
        assert index(server, {"ants": TEXTS["ants"]}) == 200
        database.kill()
        assert index(server, {"bees": TEXTS["bees"]}) == 503
        problem = wait_for_readyz(server, 503)
        assert "the database cannot be used" in problem["detail"]
        assert server.request("POST", "/match", {"text": TEXTS["ants"]})[0] == 503
        assert server.request("GET", "/livez")[0] == 200
        assert metric(server, "database_up") == 0
        database.start()
        wait_for_readyz(server, 200)
        assert metric(server, "database_up") == 1
        assert match(server, TEXTS["bees"]) == ["ants"]
        with stopped(database):  # it accepts connections, and answers nothing
            asked = time.monotonic()
            assert server.request("POST", "/match", {"text": TEXTS["ants"]})[0] == 503
            assert time.monotonic() - asked < 10 * STORE["store_seconds"]
            wait_for_readyz(server, 503)
        wait_for_readyz(server, 200)
        assert match(server, TEXTS["bees"]) == ["ants"]


def lines(documents: dict[str, str]) -> bytes:
    """Return an upload; the title of a document is the first sentence of its text."""
    return b"".join(
        json.dumps({"id": name, "text": text, "title": text.partition(".")[0]}).encode() + b"\n"
        for name, text in documents.items()
    )


def upload(server: Server, body: bytes, **headers: str) -> tuple[str, bool]:
    """Return the id of the job, and whether the response is a replay."""
    request = urllib.request.Request(
        f"{server.url}/index", body, {"Content-Type": "application/x-ndjson", **headers}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        replayed = answer.headers.get("Idempotency-Replayed") == "true"
        return answer.headers["Location"].rpartition("/")[2], replayed


def wait_for_job(server: Server, job: str, state: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = server.request("GET", f"/jobs/{job}")[1]
        if answer["state"] == state:
            return answer
        time.sleep(0.1)
    pytest.fail(f"the job is {answer}")


# A server whose clock is a day ahead.
AHEAD = f"""
import datetime, time
real = time.time
time.time = lambda: real() + 86_400
class Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = Ahead
{COMMAND[-1]}
"""


@pytest.mark.slow
def test_a_server_that_is_paused_stores_nothing_over_the_work_of_the_next(
    serve: Serve,
    tiny_checkpoint: Path,
    tmp_path: Path,
    postgresql_server: PostgreSQLServer,
    tier: Tier,
) -> None:
    """The next one has a clock that is a day ahead, by which every lease has expired."""
    shared = {"store": postgresql_server.url, "store_schema": f"e{uuid4().hex}", **STORE}
    shared |= {"job_lease_seconds": 2, "store_seconds": 10}
    chance = random.Random(tier.seed)
    with ExitStack() as servers:
        one = servers.enter_context(serve(tmp_path / "one", tiny_checkpoint, **shared))
        ahead = [*COMMAND[:-1], AHEAD]
        other = servers.enter_context(serve(tmp_path / "other", tiny_checkpoint, ahead, **shared))
        for turn in range(4):
            old = {f"d{n}": f"Old {turn}. {TEXTS['ice'] * 20} {n}." for n in range(300)}
            new = {name: f"New {turn}. {TEXTS['ants']} {name}." for name in old}
            first, _ = upload(one, lines(old))
            deadline = time.monotonic() + 60
            while not one.request("GET", f"/jobs/{first}")[1]["indexed"]:
                assert time.monotonic() < deadline
            time.sleep(chance.uniform(0, 0.5))
            begun = one.request("GET", f"/jobs/{first}")[1]
            assert begun["state"] == "running"  # at the first server: it has been renewed
            one.process.send_signal(signal.SIGSTOP)
            second, _ = upload(other, lines(new))
            assert wait_for_job(other, first, "done")["indexed"] == 300
            assert wait_for_job(other, second, "done")["indexed"] == 300
            assert other.request("DELETE", "/documents/d7")[0] == 204
            one.process.send_signal(signal.SIGCONT)
            time.sleep(1)  # it does what it was at
            wait_for_readyz(one, 200)
            for server in (one, other):
                assert server.request("GET", "/documents/d7")[0] == 404
                assert match(server, new["d8"], top_k=1) == ["d8"]
                kept = (n for n in old if n != "d7")
                titles = {server.request("GET", f"/documents/{n}")[1]["title"] for n in kept}
                assert titles == {f"New {turn}"}
            assert one.request("GET", f"/jobs/{first}")[1]["state"] == "done"


@pytest.mark.slow
def test_the_upload_of_a_server_that_dies_is_indexed_by_another(
    serve: Serve, tiny_checkpoint: Path, tmp_path: Path, postgresql_server: PostgreSQLServer
) -> None:
    shared = {"store": postgresql_server.url, "store_schema": f"e{uuid4().hex}", **STORE}
    shared["job_lease_seconds"] = 1
    many = {f"d{n}": f"{TEXTS['ice']} It has the number {n}." for n in range(400)}
    with ExitStack() as servers:
        one, other = (
            servers.enter_context(serve(tmp_path / name, tiny_checkpoint, **shared))
            for name in ("one", "other")
        )
        key = {"Idempotency-Key": "once"}
        job, _ = upload(one, lines(many), **key)
        assert upload(other, lines(many), **key) == (job, True)
        one.stop(signal.SIGKILL)
        ended = wait_for_job(other, job, "done")
        assert (ended["indexed"], ended["failed"]) == (400, 0)
        assert other.request("GET", "/readyz")[1]["documents"] == 400
        assert match(other, many["d7"], top_k=1) == ["d7"]

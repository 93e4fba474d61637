"""R3: the n-th statement, page or change of the index fails, n = 1, 2, … until none is left.

What fails is real where it can be: SQLite finds a file that may not grow, or a full database.
"""

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from index.errors import SnapshotError
from service.engine import Engine
from tests.kit.tiers import Tier
from tests.reliability.conftest import (
    LINES,
    MUSIC,
    NEW,
    RIVER,
    NthCall,
    ended,
    failed,
    lines,
    run_out_of_memory,
    send,
    sound,
    stored,
)


class FailingConnection:
    """A connection of SQLite whose n-th statement fails."""

    def __init__(self, connection: sqlite3.Connection, number: int, error: Exception) -> None:
        self._connection, self.left, self._error = connection, number, error

    def _run(self, name: str, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self._error
        return getattr(self._connection, name)(*arguments)

    def execute(self, *arguments: Any) -> Any:
        return self._run("execute", *arguments)

    def executemany(self, *arguments: Any) -> Any:
        return self._run("executemany", *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@contextmanager
def failing_statement(connections: Any, number: int, error: Exception) -> Iterator[Any]:
    real = connections._writer
    connections._writer = FailingConnection(real, number, error)
    try:
        yield connections._writer
    finally:
        connections._writer = real


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("disk I/O error"),
        MemoryError(),
    ],
    ids=["ENOSPC", "EIO", "MemoryError"],
)
def test_the_nth_statement_of_a_write_fails(client: Any, error: Exception, tier: Tier) -> None:
    engine: Engine = client.app.state.engine
    connections = engine.default.data.store.connections
    change: list[tuple[Callable[[], httpx.Response], set[str]]] = [
        (lambda: send(client, "index"), set(NEW)),
        (lambda: client.delete("/documents/music"), {"river"}),
    ]
    before: set[str] = set()
    for write, after in change:
        for number in tier.numbers(200):
            with failing_statement(connections, number, error) as connection:
                response = write()
            if connection.left > 0:
                break
            failed(response, "internal-error")
            assert stored(client) == before
        assert response.is_success
        assert number > 3
        assert stored(client) == after
        before = after
    sound(client)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process be written beyond so many bytes: the system refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_disk_fails_at_every_page_of_a_write(client: Any, tier: Tier) -> None:
    engine: Engine = client.app.state.engine
    assert client.post("/index", json={"documents": [{"id": "a", "text": MUSIC}]}).is_success
    log = engine.default.data.store.path.with_name("store.sqlite3-wal")
    begins = log.stat().st_size
    for number in tier.numbers(400):
        with files_of_at_most(begins + 3000 * number):  # in the middle of pages, and between
            response = send(client, "index")
        if response.status_code == 200:
            break
        failed(response, "storage-failed")
        assert stored(client) == set()
    assert number > 5
    assert stored(client) == set(NEW)
    lexical = {"text": RIVER, "mode": "lexical"}  # the words, whose file had no room, follow
    assert client.post("/match", json=lexical).is_success
    sound(client)


def test_a_full_database_refuses_only_what_has_no_room(client: Any) -> None:
    engine: Engine = client.app.state.engine
    writer = engine.default.data.store.connections._writer
    assert writer is not None
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    long = [{"id": name, "text": RIVER + " " * 20_000} for name in NEW]
    for more in range(100):
        writer.execute(f"PRAGMA max_page_count = {pages + more}").fetchone()
        response = client.post("/index", json={"documents": long})
        if response.status_code == 200:
            break
        failed(response, "storage-full")
        assert stored(client) == set()
    assert more > 1
    assert stored(client) == set(NEW)
    sound(client)


@pytest.mark.parametrize("number", [1, 2])
def test_an_index_that_fails_once_is_brought_up_to_the_store(client: Any, number: int) -> None:
    index = client.app.state.engine.default.data.index
    with NthCall(index._live.index, "change", run_out_of_memory).fails(number):
        assert send(client, "index").status_code == 200
        assert client.delete("/documents/music").is_success
    assert stored(client) == {"river"}
    sound(client)


def test_maintenance_brings_up_an_index_that_goes_on_failing(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = client.app.state.engine

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(engine.default.data.index._live.index, "change", broken)
        failed(send(client, "index"), "internal-error")
    engine.default.maintenance.work()
    assert stored(client) == set(NEW)
    sound(client)


@pytest.mark.usefixtures("soon")
def test_an_upload_is_taken_whole_or_not_at_all(client: Any) -> None:
    folder: Path = client.app.state.engine.settings.data / "uploads"
    body = lines(20)
    problems = set()  # of the file of the upload, and of the store of jobs
    for size in range(1000, 400_000, 4000):
        with files_of_at_most(size):
            response = client.post("/index", content=body, headers=LINES)
        if response.status_code == 202:
            break
        problems.add(failed(response, "storage-full", "storage-failed")["type"])
        assert list(folder.iterdir()) == []
        assert client.get("/jobs").json()["jobs"] == []
    assert size > 10_000
    assert problems == {"/problems/storage-full", "/problems/storage-failed"}
    job = ended(client, response)
    assert (job["state"], job["indexed"], job["failed"]) == ("done", 20, 0)
    assert stored(client) == set(NEW)
    sound(client)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("part", ["store", "jobs"])
def test_a_job_goes_on_after_the_nth_statement_failed(client: Any, part: str, tier: Tier) -> None:
    engine: Engine = client.app.state.engine
    jobs = engine.default.jobs.store._state._connections
    connections = engine.default.data.store.connections if part == "store" else jobs
    full = sqlite3.OperationalError("database or disk is full")
    for number in tier.numbers(200):
        taken = client.get("/jobs").json()["jobs"]
        with failing_statement(connections, number, full) as connection:
            response = client.post("/index", content=lines(2), headers=LINES)
            if response.status_code == 202:
                job = ended(client, response)
        if response.status_code != 202:
            failed(response, "internal-error")
            assert client.get("/jobs").json()["jobs"] == taken
            continue
        assert (job["state"], job["indexed"], job["failed"]) == ("done", 2, 0)
        assert stored(client) == set(NEW)
        assert len(engine.default.data.store) == 2
        if connection.left > 0:
            break
        for name in NEW:
            assert client.delete(f"/documents/{name}").is_success
    assert number > 3
    sound(client)


def test_an_index_that_cannot_be_published_is_searched(client: Any) -> None:
    engine: Engine = client.app.state.engine
    assert send(client, "index").status_code == 200
    generation = engine.default.data.index.manifest.generation
    for size in range(0, 1_000_000, 100):
        try:
            with files_of_at_most(size):
                engine.default.data.index.publish()
        except SnapshotError:
            assert engine.default.data.index.manifest.generation == generation
            assert stored(client) == set(NEW)
        else:
            break
    assert size > 100
    assert engine.default.data.index.manifest.generation == generation + 1
    sound(client)

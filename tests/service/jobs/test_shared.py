"""Jobs that servers share: one server runs a job, and another one when the first has died."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from index.postgres.address import Database, parse_postgresql_url
from service.errors import KeyReusedError
from service.jobs.idempotency import StoredResponse
from service.jobs.job import Job, LineError, Step, Upload
from service.jobs.shared import SharedIdempotencyStore, SharedJobStore, open_shared_tables
from tests.tools.postgresql import PostgreSQLServer

CONTENT = b'{"id": "a", "text": "Ants."}\n' * 60_000  # two parts
Open = Callable[..., SharedJobStore]


@pytest.fixture
def database(postgresql_server: PostgreSQLServer) -> Database:
    address = parse_postgresql_url(postgresql_server.url, f"j{uuid4().hex}")
    import psycopg

    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {address.schema}".encode())
    return Database(address)


@pytest.fixture
def open_jobs(database: Database, tmp_path: Path) -> Iterator[Open]:
    """Open the jobs as servers do, each with a folder of uploads and leases of its own."""
    with closing(open_shared_tables(database)) as tables:

        def make(name: str, seconds: float = 30.0) -> SharedJobStore:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            return SharedJobStore(tables, folder, seconds)

        yield make


def add(store: SharedJobStore, folder: Path, name: str, client: str = "") -> Job:
    (folder / f"{name}.ndjson").write_bytes(CONTENT)
    upload = Upload(name, len(CONTENT), 60_000, sha256(CONTENT).digest())
    return store.add(upload, None, client)


STEP = Step(10, 1, 1, 0, 0, 1, [LineError(1, "#/a\0b", "is wrong\ud800")])


def test_a_job_is_run_by_one_server_and_then_by_the_other(open_jobs: Open, tmp_path: Path) -> None:
    one, other = open_jobs("one"), open_jobs("other")
    first = add(one, tmp_path / "one", "first")
    second = add(one, tmp_path / "one", "second")
    theirs = add(one, tmp_path / "one", "theirs", "client")
    assert one.begin(first) is not None
    assert other.begin(first) is None
    # The second job of the same client waits for the first, that of another one does not.
    assert [job.id for job in other.runnable()] == [theirs.id]
    assert [job.id for job in one.runnable()] == [first.id, second.id, theirs.id]
    assert one.advance(first, STEP)
    one.pause(first, "no room")
    taken = other.begin(first)
    assert taken is not None
    assert (taken.position, taken.indexed, taken.failed) == (10, 1, 1)
    assert not one.advance(first, STEP)  # it has it no more
    assert other.find("first")[1] == [LineError(1, "#/a\ufffdb", "is wrong?")]
    path = tmp_path / "other" / "first.ndjson"
    other.fetch(taken, path)
    assert path.read_bytes() == CONTENT
    assert other.end(taken, "done")
    assert not one.end(first, "failed")
    assert [job.id for job in one.runnable()] == [second.id, theirs.id]
    assert one.cancel("second").state == "cancelled"


def test_the_lease_of_a_server_that_died_expires(open_jobs: Open, tmp_path: Path) -> None:
    died, other = open_jobs("died", 0.5), open_jobs("other")
    job = add(died, tmp_path / "died", "job")
    assert died.begin(job) is not None
    died.renew()
    assert other.runnable() == []
    deadline = time.monotonic() + 10
    while not other.runnable():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert other.begin(job) is not None
    died.renew()
    assert not died.advance(job, STEP)
    other.release()
    assert died.begin(job) is not None


def test_a_response_is_replayed_by_every_server(database: Database) -> None:
    response = StoredResponse(202, b"{}", "/jobs/1")
    with closing(open_shared_tables(database)) as one, closing(open_shared_tables(database)) as two:
        SharedIdempotencyStore(one, 2).put("key", b"request", response)
        other = SharedIdempotencyStore(two, 2)
        assert other.find("key", b"request") == response
        with pytest.raises(KeyReusedError):
            other.find("key", b"another")
        for n in range(3):
            other.put(f"k{n}", b"request", response)
        assert other.find("key", b"request") is None
        assert other.find("k2", b"request") == response

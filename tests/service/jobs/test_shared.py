"""Jobs that servers share: one server runs a job, and another one when the first has died."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from index.postgres.address import Database, parse_postgresql_url
from index.postgres.connections import Session
from index.postgres.document_store import PostgreSQLDocumentStore
from index.store.records import EncodedDocument
from service.errors import KeyReusedError
from service.jobs.idempotency import StoredResponse
from service.jobs.shared import SharedIdempotencyStore, SharedJobStore, open_shared_tables
from service.jobs.store import Job, LeaseLostError, LineError, Step, Upload
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT
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
    with pytest.raises(LeaseLostError):
        one.advance(first, STEP)  # it has it no more
    assert other.find("first")[1] == [LineError(1, "#/a\ufffdb", "is wrong?")]
    path = tmp_path / "other" / "first.ndjson"
    other.fetch(taken, path)
    assert path.read_bytes() == CONTENT
    assert other.end(taken, "done")
    with pytest.raises(LeaseLostError):
        one.end(first, "failed")
    assert other.find("first")[0].state == "done"
    assert [job.id for job in one.runnable()] == [second.id, theirs.id]
    assert one.cancel("second").state == "cancelled"


def test_the_lease_of_a_server_that_died_expires(open_jobs: Open, tmp_path: Path) -> None:
    died, other = open_jobs("died", 0.5), open_jobs("other")
    job = add(died, tmp_path / "died", "job")
    assert died.begin(job) is not None
    died.renew()
    assert other.runnable() == []
    deadline = time.monotonic() + 120
    while not other.runnable():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert other.begin(job) is not None
    died.renew()
    with pytest.raises(LeaseLostError):
        died.advance(job, STEP)
    with pytest.raises(LeaseLostError):
        died.end(job, "failed")
    died.pause(job, "no room")
    found, errors = other.find("job")
    assert (found.state, found.line, errors) == ("running", 0, [])
    other.release()
    assert died.begin(job) is not None


def test_a_server_that_was_paused_stores_nothing_over_the_work_of_the_next(
    open_jobs: Open, database: Database, tmp_path: Path, entry: Callable[..., EncodedDocument]
) -> None:
    paused, other = open_jobs("paused", 0.0), open_jobs("other")
    job = add(paused, tmp_path / "paused", "job")
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
    with closing(PostgreSQLDocumentStore(database.address, **about)) as documents:
        assert paused.begin(job) is not None
        late = paused.fence(job)
        documents.put([entry("a", "first")], late)  # it has expired, and nobody has taken it
        assert other.begin(job) is not None
        documents.put([entry("a", "second")], other.fence(job))
        with pytest.raises(LeaseLostError):
            documents.put([entry("a", "first"), entry("b")], late)
        assert documents.find(["a", "b"])["a"].document.text == "second"
        assert (len(documents), documents.sequence) == (1, 2)
        other.release()
        assert paused.begin(job) is not None
        with pytest.raises(LeaseLostError):
            documents.put([entry("b")], late)  # of its first lease
        documents.put([entry("b")], paused.fence(job))


def test_a_lease_is_not_given_while_documents_are_stored_under_the_last_one(
    open_jobs: Open, database: Database, tmp_path: Path, entry: Callable[..., EncodedDocument]
) -> None:
    one, other = open_jobs("one", 0.0), open_jobs("other")
    job = add(one, tmp_path / "one", "job")
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
    with (
        closing(PostgreSQLDocumentStore(database.address, **about)) as documents,
        ThreadPoolExecutor(1) as thread,
    ):
        assert one.begin(job) is not None
        taken: list[Future[Job | None]] = []

        def take_meanwhile(session: Session) -> None:
            one.fence(job)(session)
            taken.append(thread.submit(other.begin, job))
            with pytest.raises(TimeoutError):
                taken[0].result(0.3)

        documents.put([entry("a")], take_meanwhile)
        assert taken[0].result(30) is not None


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

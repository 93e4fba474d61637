"""R3: the n-th call of something fails, n = 1, 2, … until none is left that could.

After each failure the answer is a problem, what was acknowledged is there, what was not is not,
and the next request succeeds. What fails is real where it can be: ONNX Runtime refuses its inputs,
and SQLite finds a file that may not grow or a database that is full.
"""

import asyncio
import json
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from index.doctor.examine import Sampling, examine
from index.errors import SnapshotError
from index.progress import SilentProgress
from service.api.http.problems import PROBLEM_TYPES
from service.engine import Engine
from tests.tools.tiers import Tier

LINES = {"content-type": "application/x-ndjson"}
RIVER = "Rivers carry stones and sand to the sea. In spring they flood the fields. " * 9
MUSIC = "A sonata has three movements. The second of them is slow and quiet. " * 9
NEW = ("river", "music")
REQUESTS: dict[str, tuple[str, Any]] = {
    "match": ("/match", {"queries": [{"text": RIVER}, {"text": MUSIC}], "mode": "semantic"}),
    "index": (
        "/index",
        {"documents": [{"id": "river", "text": RIVER}, {"id": "music", "text": MUSIC}]},
    ),
    "compare": ("/compare", {"left": {"text": RIVER}, "right": {"text": MUSIC}}),
}
Call = Callable[..., Any]
Raise = Callable[[Call], None]


class NthCall:
    """Stands for a method of an object, and lets its n-th call fail."""

    def __init__(self, owner: Any, name: str, failure: Raise) -> None:
        self._owner, self._name, self._failure = owner, name, failure
        self._method: Call = getattr(owner, name)
        self.left = 0

    @contextmanager
    def fails(self, number: int) -> Iterator[None]:
        self.left = number
        setattr(self._owner, self._name, self)
        try:
            yield
        finally:
            setattr(self._owner, self._name, self._method)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self._failure(self._method)
        return self._method(*arguments, **named)


def refuse_inputs(run: Call) -> None:
    """Let ONNX Runtime raise one of its own errors."""
    run(None, {"no such input": np.zeros(1, dtype=np.float32)})
    pytest.fail("ONNX Runtime took it")


def fail_in_the_graph(run: Call) -> None:
    """Let ONNX Runtime fail at a token that no vocabulary has, in the middle of its work."""
    tokens = np.full((1, 4), 2**40, dtype=np.int64)
    run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})
    pytest.fail("ONNX Runtime took it")


def run_out_of_memory(_: Call) -> None:
    raise MemoryError("cannot allocate 17 bytes")


def of_encoder(engine: Engine) -> dict[str, tuple[Any, str, Raise]]:
    """Return what may fail while texts are encoded."""
    graphs, scheduler = engine.encoder._graphs, engine.scheduler
    return {
        "inputs of the block graph": (graphs.block, "run", refuse_inputs),
        "block graph": (graphs.block, "run", fail_in_the_graph),
        "inputs of the document graph": (graphs.document, "run", refuse_inputs),
        "memory of the block graph": (graphs.block, "run", run_out_of_memory),
        "memory of the document graph": (graphs.document, "run", run_out_of_memory),
        "memory of the tokenizer": (engine.tokenizer, "_tokenise", run_out_of_memory),
        "memory of a worker after a call": (
            engine.metrics.encoded_blocks,
            "inc",
            run_out_of_memory,
        ),
        "memory of the queue": (scheduler._queue, "store_vectors", run_out_of_memory),
    }


ENCODER_FAULTS = (
    "inputs of the block graph", "block graph", "inputs of the document graph",
    "memory of the block graph", "memory of the document graph", "memory of the tokenizer",
    "memory of a worker after a call", "memory of the queue",
)  # fmt: skip


@pytest.fixture
def client(make_client: Callable[..., Any]) -> Any:
    """Return a client of an engine that encodes everything anew, one block after the other."""
    return make_client(block_cache_bytes=0, threads=1)


def send(client: Any, name: str) -> httpx.Response:
    path, body = REQUESTS[name]
    response: httpx.Response = client.post(path, json=body)
    return response


def failed(response: httpx.Response, *names: str) -> dict[str, Any]:
    """Check that it is a clear problem of the service, without a word of its inside."""
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    name = problem["type"].removeprefix("/problems/")
    assert name in names
    assert response.status_code == PROBLEM_TYPES[name].status, response.text
    assert problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]
    for word in ("Traceback", 'File "', "onnxruntime", "Error", "sqlite", "17 bytes"):
        assert word not in response.text
    return problem


def stored(client: Any) -> set[str]:
    """Return which of the new documents are stored, and check that exactly those are found."""
    there = {one for one in NEW if client.get(f"/documents/{one}").status_code == 200}
    asked = {"text": RIVER, "top_k": 100, "mode": "semantic"}
    response = client.post("/match", json=asked)
    assert response.status_code == 200, response.text
    found = {match["id"] for match in response.json()["matches"]}
    assert found & set(NEW) == there
    engine = client.app.state.engine
    assert len(engine.default.data.index) == len(engine.default.data.store)
    return there


def sound(client: Any) -> None:
    """Check that the engine is ready, at rest, and that the doctor finds nothing."""
    engine: Engine = client.app.state.engine
    assert client.get("/readyz").json()["status"] == "ready"
    assert engine.scheduler.queued_tokens == 0
    assert engine.admission.active == 0
    sampling = Sampling(4, "fp32", SilentProgress())
    assert examine(engine.default.data.path, engine.checkpoint, sampling) == ()


@pytest.mark.parametrize("fault", ENCODER_FAULTS)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_the_nth_call_of_the_encoder_fails(
    client: Any, request_name: str, fault: str, tier: Tier
) -> None:
    call = NthCall(*of_encoder(client.app.state.engine)[fault])
    for number in tier.numbers(200):
        with call.fails(number):
            response = send(client, request_name)
        if response.status_code == 200 and call.left > 0:
            break
        failed(response, "encoding-failed", "internal-error")
        assert stored(client) == set()
    else:
        pytest.fail("there is always one more call")
    assert number > 1
    assert stored(client) == (set(NEW) if request_name == "index" else set())
    sound(client)


def test_requests_that_share_the_encoder_with_a_failure_are_answered(
    client: Any, connected: Any
) -> None:
    call = NthCall(client.app.state.engine.encoder._graphs.block, "run", fail_in_the_graph)

    async def run() -> list[httpx.Response]:
        async with connected(client.app) as http:
            asked = [{"text": f"{RIVER} {number}."} for number in range(6)]
            return await asyncio.gather(*(http.post("/match", json=one) for one in asked))

    with call.fails(5):
        responses = asyncio.run(asyncio.wait_for(run(), 30))
    assert sorted(response.status_code for response in responses) == [200] * 5 + [500]
    sound(client)


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
    connections = engine.default.data.store._connections
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
    sound(client)


def test_a_full_database_refuses_what_has_no_room_and_nothing_else(client: Any) -> None:
    engine: Engine = client.app.state.engine
    writer = engine.default.data.store._connections._writer
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


def test_an_index_that_goes_on_failing_is_brought_up_by_the_maintenance(
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


def lines(count: int) -> bytes:
    texts = (RIVER, MUSIC)
    documents = [{"id": NEW[n], "text": texts[n]} for n in range(2)]
    documents += [{"id": f"more {n}", "text": f"{n}. {MUSIC}"} for n in range(count - 2)]
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def ended(client: Any, response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 202, response.text
    deadline = time.monotonic() + 20
    while (job := client.get(response.headers["location"]).json())["state"] in (
        "waiting",
        "running",
    ):
        assert time.monotonic() < deadline, job
        time.sleep(0.01)
    found: dict[str, Any] = job
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs that wait after a failure be tried again at once."""
    monkeypatch.setattr("service.jobs.runner._RETRY_SECONDS", 0.02)
    monkeypatch.setattr("service.jobs.runner._IDLE_SECONDS", 0.02)


@pytest.mark.usefixtures("soon")
def test_an_upload_is_taken_whole_or_not_at_all(client: Any) -> None:
    folder: Path = client.app.state.engine.settings.data / "uploads"
    body = lines(20)
    for size in range(1000, 400_000, 4000):
        with files_of_at_most(size):
            response = client.post("/index", content=body, headers=LINES)
        if response.status_code == 202:
            break
        failed(response, "storage-full", "storage-failed")
        assert list(folder.iterdir()) == []
        assert client.get("/jobs").json()["jobs"] == []
    assert size > 10_000
    job = ended(client, response)
    assert (job["state"], job["indexed"], job["failed"]) == ("done", 20, 0)
    assert stored(client) == set(NEW)
    sound(client)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("part", ["store", "jobs"])
def test_a_job_goes_on_after_the_nth_statement_failed(client: Any, part: str, tier: Tier) -> None:
    engine: Engine = client.app.state.engine
    jobs = engine.default.jobs.store._connections
    connections = engine.default.data.store._connections if part == "store" else jobs
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


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("fault", ["block graph", "memory of the document graph"])
def test_a_job_goes_on_after_the_encoder_failed(client: Any, fault: str) -> None:
    engine: Engine = client.app.state.engine
    call = NthCall(*of_encoder(engine)[fault])
    for number in (1, 2, 5, 1000):
        with call.fails(number):
            job = ended(client, client.post("/index", content=lines(4), headers=LINES))
        assert (job["state"], job["indexed"], job["failed"]) == ("done", 4, 0)
        assert stored(client) == set(NEW)
        for name in (*NEW, "more 0", "more 1"):
            assert client.delete(f"/documents/{name}").is_success
    sound(client)


def test_an_index_that_cannot_be_published_is_searched_all_the_same(
    client: Any,
) -> None:
    engine: Engine = client.app.state.engine
    assert send(client, "index").status_code == 200
    generation = engine.default.data.index.generation
    for size in range(0, 1_000_000, 100):
        try:
            with files_of_at_most(size):
                engine.default.data.index.publish()
        except SnapshotError:
            assert engine.default.data.index.generation == generation
            assert stored(client) == set(NEW)
        else:
            break
    assert size > 100
    assert engine.default.data.index.generation == generation + 1
    sound(client)

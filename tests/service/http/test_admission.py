"""Admission, before a body is read: room, deadlines, rate limits, slow uploads."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.engine import Engine
from service.errors import OverloadedError
from service.metrics import Metrics
from service.workers.scheduler import EncodeScheduler
from tests.kit.problems import problem
from tests.kit.service_fixtures import counted, with_parts
from tests.kit.waiting import wait_in_loop

JSON = {"content-type": "application/json"}
PAGE = {"text": "Ants carry leaves to the colony every day. " * 3}
BOOK = {"text": "Ants carry leaves to the colony every day. " * 500}
DEADLINE = "X-Request-Timeout-Ms"


async def never() -> AsyncIterator[bytes]:
    pytest.fail("the body was read")
    yield b""


def with_encoder(client: Any, encoder: Any, **settings: Any) -> tuple[Any, Engine]:
    """Return a client of the same engine with another encoder."""
    engine: Engine = client.app.state.engine
    scheduler = EncodeScheduler(encoder, max_queue_tokens=4096, metrics=Metrics(), **settings)
    changed = with_parts(engine, scheduler=scheduler)
    return type(client)(create_app(engine.settings, changed)), changed


@pytest.mark.parametrize("path", ["/match", "/index", "/compare"])
def test_a_full_service_refuses_before_the_body_is_read(
    client: Any, engine: Engine, path: str
) -> None:
    with engine.scheduler.reserve(4096):
        headers = JSON | {"content-length": "40000"}
        started = time.perf_counter()
        response = client.post(path, content=never(), headers=headers)
        assert time.perf_counter() - started < 30
        problem(response, 503, "overloaded")
        assert int(response.headers["retry-after"]) >= 1


def test_a_body_on_its_way_takes_room_and_gives_it_back(client: Any, engine: Engine) -> None:
    seen: list[int] = []

    async def parts() -> AsyncIterator[bytes]:
        for part in (b'{"text": "', b"ants " * 100, b"bees " * 100, b'"}'):
            yield part
            seen.append(engine.scheduler.queue.queued_tokens)

    response = client.post("/match", content=parts(), headers=JSON)
    assert response.status_code == 200
    # The parts are sent as fast as they are read: what is seen is behind by one at most.
    assert seen == sorted(seen)
    assert max(seen) >= 500 // 4
    assert engine.scheduler.queue.queued_tokens == 0


def test_a_body_that_grows_beyond_the_room_is_refused(client: Any, engine: Engine) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"text": "'
        for _ in range(1000):
            yield b"ants " * 100

    with engine.scheduler.reserve(3000):
        problem(client.post("/match", content=endless(), headers=JSON), 503, "overloaded")
    assert engine.scheduler.queue.queued_tokens == 0


def test_a_body_that_stalls_is_rejected_and_delays_no_other(
    client: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.body.UPLOAD_SECONDS", 2.0)
    ahead: list[float] = []

    async def stops() -> AsyncIterator[bytes]:
        yield b'{"text": "'
        queue = engine.scheduler.queue
        await wait_in_loop(lambda: not queue._ahead("short"))
        ahead.append(queue._ahead("short"))
        ahead.append(engine.scheduler.queue.queued_tokens)
        await asyncio.sleep(600)

    headers = JSON | {"content-length": "4000"}
    started = time.monotonic()
    response = client.post("/match", content=stops(), headers=headers)
    problem(response, 408, "upload-too-slow")
    assert response.headers["connection"] == "close"
    assert 2 <= time.monotonic() - started < 60
    assert ahead == [0, 10 // 4 + 1]  # room for what came, not for what was announced
    assert engine.scheduler.queue.queued_tokens == 0


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/text", "text/plain"), ("/match", "application/json"), ("/index", "application/x-ndjson")],
)
def test_without_room_for_its_bytes_no_body_is_read(
    client: Any, engine: Engine, path: str, kind: str
) -> None:
    headers = {"content-type": kind, "content-length": str(2**24)}
    with engine.bodies.admit("another", 2**26), engine.bodies.admit("a third", 2**26 - 2**19):
        response = client.post(path, content=never(), headers=headers)
        problem(response, 503, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
    assert counted(engine, "longmatch_admission_rejected_total", reason="body_bytes") == 1
    with engine.bodies.admit("another", 2**26):  # as much as it may hold
        with pytest.raises(OverloadedError), engine.bodies.admit("another", 1):
            pytest.fail("there is room")
        answer = client.post("/text", content=b"Bees.", headers={"content-type": "text/plain"})
        assert answer.status_code == 200
    assert engine.bodies.active == 0


def test_a_slow_body_holds_the_bytes_that_have_arrived(client: Any, engine: Engine) -> None:
    held: list[int] = []

    async def stops() -> AsyncIterator[bytes]:
        held.append(engine.bodies.active)
        yield b"Bees "
        await wait_in_loop(lambda: engine.bodies.active == 5)
        yield b"hum. "
        await wait_in_loop(lambda: engine.bodies.active == 10)
        yield b"x" * 990

    headers = {"content-type": "text/plain", "content-length": "1000"}
    assert client.post("/text", content=stops(), headers=headers).status_code == 200
    assert held == [1000]
    assert engine.bodies.active == 0


def test_a_deadline_passed_in_the_queue_computes_nothing(
    client: Any, stepped_encoder: Any, connected: Any
) -> None:
    encoder = stepped_encoder(opened=False)
    served, engine = with_encoder(client, encoder)
    engine_tokens = engine.encoder.read

    async def run() -> list[httpx.Response]:
        async with connected(served.app) as http:
            first = asyncio.create_task(http.post("/match", json={"text": "Bees."}))
            await asyncio.to_thread(encoder.wait_for_call)
            late = [
                asyncio.create_task(http.post("/match", json=PAGE, headers={DEADLINE: "200"}))
                for _ in range(5)
            ]
            answers = await asyncio.gather(*late)
            encoder.let()
            await first
            return answers

    for response in asyncio.run(asyncio.wait_for(run(), 120)):
        problem(response, 504, "deadline-passed")
    engine.scheduler.close()
    assert encoder.calls == [[tuple(engine_tokens("Bees.").blocks[0])]]
    assert counted(engine, "longmatch_deadline_dropped_total") == 5
    assert engine.scheduler.queue.queued_tokens == 0


def test_a_hopeless_deadline_is_rejected_at_once(client: Any, stepped_encoder: Any) -> None:
    served, engine = with_encoder(client, stepped_encoder())
    engine.scheduler.measure(100.0, 1.0)
    with engine.scheduler.reserve(1000):
        response = served.post("/match", json=PAGE, headers={DEADLINE: "9000"})
        problem(response, 503, "overloaded")
        assert counted(engine, "longmatch_admission_rejected_total", reason="deadline") == 1
    engine.scheduler.close()


@pytest.mark.parametrize(
    "given",
    ["0", "-5", "1.5", "soon", "", "9" * 30, "86400001", "١", "0" * 11 + "1" * 389, "1\n", "007"],
)
def test_a_deadline_that_makes_no_sense_is_named(library: Any, given: str) -> None:
    headers = [(b"content-type", b"application/json"), (DEADLINE.encode(), given.encode())]
    content = problem(library.post("/match", json=PAGE, headers=headers), 422, "invalid-input")
    (error,) = content["errors"]
    assert error["parameter"] == DEADLINE
    assert error["limit"] == 86_400_000
    assert "pointer" not in error


def test_a_client_over_its_rate_limit_learns_when_to_retry(make_client: Any) -> None:
    client = make_client(rate_limit_tokens_per_minute=100)
    engine: Engine = client.app.state.engine
    body = {"text": "ants " * 40}  # 210 bytes: 53 tokens
    first = client.post("/match", json=body)
    assert first.status_code == 200
    assert first.headers["ratelimit-policy"] == '"tokens";q=100;w=60'
    assert first.headers["ratelimit"] == '"tokens";r=47;t=32'
    refused = client.post("/match", content=never(), headers=JSON | {"content-length": "212"})
    content = problem(refused, 429, "rate-limited")
    assert int(refused.headers["retry-after"]) == content["retry_after"] >= 1
    assert refused.headers["ratelimit"].startswith('"tokens";r=4')
    assert content["limit"] == 100
    assert client.get("/readyz").status_code == 200
    assert counted(engine, "longmatch_rate_limited_total") == 1
    assert engine.scheduler.queue.queued_tokens == 0
    assert engine.admission.active == 0


def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    return parts()


def test_a_body_in_chunks_is_admitted_and_then_charged(make_client: Any) -> None:
    client = make_client(rate_limit_tokens_per_minute=8_000)
    body = json.dumps({"id": "none", "title": "x" * 20_000}).encode()
    first = client.post("/match", content=in_chunks(body), headers=JSON)
    assert first.headers["ratelimit"].startswith('"tokens";r=29')
    assert client.post("/match", content=in_chunks(body), headers=JSON).status_code == 422
    problem(client.post("/match", content=in_chunks(body), headers=JSON), 429, "rate-limited")


@pytest.mark.parametrize("form", ["announced", "chunked", "gzip"])
def test_an_upload_is_charged_by_its_size(make_client: Any, form: str) -> None:
    client = make_client(rate_limit_tokens_per_minute=10_000)
    lines = json.dumps({"id": "a", "text": "Ants dig.", "other": "x" * 30_000}).encode()
    headers = {"content-type": "application/x-ndjson"}
    if form == "gzip":
        lines, headers["content-encoding"] = gzip.compress(lines), "gzip"
    admitted = 1 if form == "announced" else 2  # by what is announced, and what is owed then
    for status in (*[202] * admitted, 429):
        content = in_chunks(lines) if form == "chunked" else lines
        response = client.post("/index", content=content, headers=headers)
        assert response.status_code == status, response.text
    assert len(client.get("/jobs").json()["jobs"]) == admitted
    assert list((client.app.state.engine.settings.data / "uploads").glob("*.partial")) == []


def test_a_trusted_proxy_names_the_client(make_client: Any) -> None:
    client = make_client(rate_limit_tokens_per_minute=100, trusted_proxies="127.0.0.0/8")
    body = {"text": "z" * 200}
    for address, status in (("10.0.0.1", 200), ("6.6.6.6, 10.0.0.1", 429), ("10.0.0.2", 200)):
        response = client.post("/match", json=body, headers={"X-Forwarded-For": address})
        assert response.status_code == status, address


def test_lines_of_ndjson_take_no_room_from_requests(client: Any, engine: Engine) -> None:
    with engine.scheduler.reserve(4096):
        lines = json.dumps({"id": "a", **BOOK})
        headers = {"content-type": "application/x-ndjson"}
        assert client.post("/index", content=lines, headers=headers).status_code == 202


def test_only_probes_and_documentation_are_always_open(library: Any) -> None:
    for route in library.app.router.routes:
        if getattr(route, "include_in_schema", False):
            assert (route.rules.cost == "nothing") is ("operations" in route.tags), route

"""Limits, overload, clients that disconnect, and unexpected errors."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from service.app import create_app
from service.documents import logic as indexing
from service.engine import Engine
from service.errors import EncodingFailedError
from service.match import routes as match_route
from service.metrics import Metrics
from service.workers.scheduler import EncodeScheduler
from tests.kit.problems import problem
from tests.kit.service_fixtures import counted, with_parts

JSON = {"content-type": "application/json"}


async def chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def body_of(size: int) -> bytes:
    """Return a good body of so many bytes."""
    body = b'{"text": "ants"}'
    return body[:-1] + b" " * (size - len(body)) + b"}"


@pytest.mark.parametrize("streamed", [False, True])
def test_the_limit_of_the_body_is_exact(make_client: Any, streamed: bool) -> None:
    client = make_client(max_body_bytes=1000)

    def send(size: int) -> Any:
        content = chunks(body_of(size), 7) if streamed else body_of(size)
        return client.post("/match", content=content, headers=JSON)

    assert send(1000).status_code == 200
    content = problem(send(1001), 413, "body-too-large")
    assert content["limit"] == 1000


def test_a_body_that_is_announced_too_large_is_not_read(client: Any) -> None:
    async def never() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    headers = {**JSON, "content-length": str(17 * 1024 * 1024)}
    response = client.post("/match", content=never(), headers=headers)
    problem(response, 413, "body-too-large")
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("length", ["-1", "many", "１２", "9" * 30])
def test_a_senseless_content_length_does_no_harm(library: Any, length: str) -> None:
    status, _, _ = exchange(library.app, body_of(100), [(b"content-length", length.encode())])
    assert status in (200, 413)


def test_a_client_that_leaves_while_it_sends_is_let_go(client: Any, engine: Engine) -> None:
    messages = [{"type": "http.request", "body": b'{"te', "more_body": True}]
    status, _, _ = exchange(client.app, None, [], messages)
    assert status is None
    assert (
        counted(engine, "longmatch_requests_total", route="/match", method="POST", code="499") == 1
    )


def exchange(
    app: Any,
    body: bytes | None,
    headers: list[tuple[bytes, bytes]],
    messages: list[dict[str, Any]] | None = None,
    *,
    path: str = "/match",
    leave: Callable[[], Any] | None = None,
) -> tuple[int | None, dict[bytes, bytes], bytes]:
    """Call the application by ASGI directly.

    The client is gone when `leave` returns; without it when the answer is sent, as servers have it.
    """
    incoming = messages or [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop(0)
            if messages is None:
                await (answered.wait() if leave is None else asyncio.to_thread(leave))
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                answered.set()

        answered = asyncio.Event()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json"), *headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        await asyncio.wait_for(app(scope, receive, send), 120)

    asyncio.run(run())
    if not sent:
        return None, {}, b""
    body_sent = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body_sent


def test_a_client_that_leaves_costs_no_more(
    client: Any, engine: Engine, stepped_encoder: Any
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = EncodeScheduler(encoder, max_queue_tokens=4096, metrics=Metrics())
    app = create_app(engine.settings, with_parts(engine, scheduler=scheduler))
    body = json.dumps({"text": "Ants carry leaves to the colony every day. " * 50}).encode()
    status, _, _ = exchange(app, body, [], leave=encoder.wait_for_call)
    assert status is None
    assert scheduler.queue.queued_tokens == 0
    assert engine.admission.active == 0
    encoder.let()
    scheduler.close()
    assert len(encoder.calls) == 1
    assert counted(engine, "longmatch_cancelled_total") == 1
    assert (
        counted(engine, "longmatch_requests_total", route="/match", method="POST", code="499") == 1
    )


def test_leaving_during_a_write_stores_the_whole_document(
    client: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on, write = threading.Event(), threading.Event(), indexing._put

    def slow_write(*arguments: Any) -> float:
        writing.set()
        assert go_on.wait(120)
        return write(*arguments)

    monkeypatch.setattr(indexing, "_put", slow_write)
    body = json.dumps({"documents": [{"id": "a", "text": "Ants dig."}]}).encode()
    status, _, _ = exchange(client.app, body, [], path="/index", leave=writing.wait)
    assert status is None
    go_on.set()
    engine.default.writer.submit(lambda: None).result(10)
    assert client.get("/documents/a").status_code == 200
    assert len(engine.default.data.index) == 1


def test_an_answered_request_is_not_counted_as_cancelled(filled: Any, engine: Engine) -> None:
    for _ in range(5):
        status, _, _ = exchange(filled.app, b'{"id": "bees"}', [])
        assert status == 200
    assert counted(engine, "longmatch_cancelled_total") == 0
    assert engine.admission.active == 0


def test_too_many_requests_at_a_time_are_refused(make_client: Any) -> None:
    client = make_client(max_active_requests=1)
    engine = client.app.state.engine
    with engine.admission.admit():
        response = client.post("/match", json={"text": "Ants."})
        problem(response, 503, "overloaded")
        assert response.headers["retry-after"] == "1"
        problem(client.get("/documents/a"), 503, "overloaded")
        assert client.get("/readyz").status_code == 200
    assert client.post("/match", json={"text": "Ants."}).status_code == 200
    assert counted(engine, "longmatch_admission_rejected_total", reason="active_requests") == 2
    assert engine.admission.active == 0


def test_exports_that_begin_leave_places_to_others(make_client: Any, connected: Any) -> None:
    client = make_client(max_active_requests=16)
    engine = client.app.state.engine
    gate = threading.Event()
    engine.exporter.submit(gate.wait)

    async def run() -> tuple[Any, list[Any]]:
        async with connected(client.app) as http:
            headers = {"accept": "application/x-ndjson"}
            exports = [
                asyncio.create_task(http.get("/documents", headers=headers)) for _ in range(8)
            ]
            while not all(export.done() for export in exports[2:]):
                await asyncio.sleep(0.01)
            other = await http.get("/documents")
            gate.set()
            return other, await asyncio.gather(*exports)

    other, exports = asyncio.run(asyncio.wait_for(run(), 120))
    assert other.status_code == 200
    assert [export.status_code for export in exports] == [200] * 2 + [503] * 6
    assert counted(engine, "longmatch_admission_rejected_total", reason="exports") == 6


@pytest.mark.parametrize("given", ["abc-123", "A.b_c~d", "x" * 128])
def test_a_request_id_comes_back(library: Any, given: str) -> None:
    response = library.get("/nowhere", headers={"X-Request-ID": given})
    assert response.headers["x-request-id"] == given
    assert response.json()["request_id"] == given
    assert library.get("/livez", headers={"X-Request-ID": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "<script>", "a\tb"])
def test_a_request_id_that_is_none_is_replaced(library: Any, given: str) -> None:
    made = library.get("/livez", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert made != given
    assert len(made) == 32


def test_an_unexpected_error_reveals_no_text(
    client: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*arguments: Any, **more: Any) -> None:
        raise ValueError(f"no sense in {arguments}")

    monkeypatch.setattr(match_route, "match", broken)
    response = client.post("/match", json={"text": "the password is swordfish"})
    content = problem(response, 500, "internal-error")
    assert "swordfish" not in response.text
    assert "Traceback" not in response.text
    assert content["request_id"] in caplog.text
    assert "ValueError" in caplog.text
    assert "in broken" in caplog.text
    assert "swordfish" not in caplog.text
    assert (
        counted(engine, "longmatch_requests_total", route="/match", method="POST", code="500") == 1
    )


def test_a_failure_of_the_disk_is_in_the_log(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*arguments: Any, **more: Any) -> None:
        raise EncodingFailedError from OSError(28, "No space left on device")

    monkeypatch.setattr(match_route, "match", broken)
    with caplog.at_level(logging.ERROR):
        response = client.post("/match", json={"text": "a"})
    problem(response, 500, "encoding-failed")
    assert "No space left" not in response.text
    assert "No space left" in caplog.text

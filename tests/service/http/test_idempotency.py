"""Idempotency-Key: what a client gets when it repeats a request."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from service import state
from service.app import create_app
from service.startup import open_engine
from service.state import RETENTION_SECONDS
from tests.kit.problems import problem

BODIES = {
    "application/json": [
        json.dumps({"documents": [{"id": "a", "text": text}]}) for text in ("Ants.", "Bees.")
    ],
    "application/x-ndjson": [
        json.dumps({"id": "a", "text": text}) + "\n" for text in ("Ants.", "Bees.")
    ],
}
both = pytest.mark.parametrize("kind", BODIES)


def send(client: Any, kind: str, body: str, key: str = "k") -> Any:
    return client.post(
        "/index", content=body, headers={"content-type": kind, "idempotency-key": key}
    )


@both
def test_the_same_request_gets_the_same_answer(client: Any, kind: str) -> None:
    body, other = BODIES[kind]
    first, second = send(client, kind, body), send(client, kind, body)
    assert first.is_success
    assert second.status_code == first.status_code
    assert second.content == first.content
    assert second.headers.get("location") == first.headers.get("location")
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len(client.get("/jobs").json()["jobs"]) == (kind != "application/json")
    assert send(client, kind, other, "another").is_success
    assert send(client, kind, body).content == first.content


@both
def test_the_same_key_with_another_body_is_refused(client: Any, kind: str) -> None:
    body, other = BODIES[kind]
    send(client, kind, body)
    problem(send(client, kind, other), 422, "idempotency-key-reused")
    for another in set(BODIES) - {kind}:
        problem(send(client, another, BODIES[another][0]), 422, "idempotency-key-reused")
    kept = list((client.app.state.engine.settings.data / "uploads").iterdir())
    assert len(kept) <= (kind != "application/json")  # that of the first request


def test_a_request_that_failed_may_be_sent_again_another_way(client: Any) -> None:
    kind = "application/json"
    problem(send(client, kind, '{"documents": []}'), 422, "invalid-input")
    assert send(client, kind, BODIES[kind][0]).is_success


@both
def test_a_key_in_use_is_rejected(client: Any, kind: str, connected: Callable[..., Any]) -> None:
    body = BODIES[kind][0].encode()
    headers = {"content-type": kind, "idempotency-key": "k"}
    collection = client.app.state.engine.default

    async def run() -> tuple[Any, Any]:
        async with connected(client.app) as sender:
            with collection.state.writing():  # the first one cannot end
                first = asyncio.create_task(sender.post("/index", content=body, headers=headers))
                while "k" not in collection.jobs.idempotency._in_progress:
                    await asyncio.sleep(0.01)
                second = await sender.post("/index", content=body, headers=headers)
            return await first, second

    first, second = asyncio.run(run())
    assert first.is_success
    problem(second, 409, "idempotency-key-in-use")
    assert send(client, kind, body.decode()).content == first.content


@pytest.mark.parametrize("key", ["", "a" * 256, "two words", "ü"])
@both
def test_a_key_that_is_none_is_refused_by_name(empty: Any, kind: str, key: str) -> None:
    headers = {b"content-type": kind.encode(), b"idempotency-key": key.encode()}
    response = empty.post("/index", content=BODIES[kind][0], headers=headers)
    problem(response, 422, "invalid-input")
    assert response.json()["errors"][0]["parameter"] == "idempotency-key"


def test_answers_outlive_the_process_and_a_clock_that_jumps(
    empty: Any, make_settings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(make_settings())
    answer = send(type(empty)(create_app(engine.settings, engine)), *one_request())
    engine.opened.close()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 30 * 24 * 3600)
    engine = open_engine(make_settings())
    again = send(type(empty)(create_app(engine.settings, engine)), *one_request())
    engine.opened.close()
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == answer.content


def one_request() -> tuple[str, str]:
    return "application/json", BODIES["application/json"][0]


def test_after_a_day_of_service_a_key_is_forgotten(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, body = one_request()
    send(client, kind, body)
    real = time.monotonic
    for seconds, replayed in ((RETENTION_SECONDS - 60, True), (RETENTION_SECONDS, False)):
        monkeypatch.setattr(state, "monotonic", lambda seconds=seconds: real() + seconds)
        assert ("idempotency-replayed" in send(client, kind, body).headers) == replayed

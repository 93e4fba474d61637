"""Indexing: atomic, durable, found at once, and nothing is encoded twice."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from index.document import Document
from service.documents.logic import find_document, index_documents
from service.documents.schemas import IndexResponse
from service.encode import RequestText
from service.engine import Engine
from service.errors import EncodingFailedError
from service.match.logic import match
from service.match.schemas import MatchRequest
from service.metrics import Metrics
from service.workers.scheduler import EncodeScheduler
from tests.kit.service_fixtures import with_parts


def put(engine: Engine, *documents: Document, **more: Any) -> IndexResponse:
    return asyncio.run(index_documents(engine.default, documents, **more))


def best(engine: Engine, text: str) -> tuple[str, float]:
    options = MatchRequest.model_construct(top_k=1)
    (found,) = asyncio.run(match(engine.default, [RequestText("#/text", text)], options))
    return found.answer.hits[0].id, found.answer.hits[0].score


def encoded_blocks(engine: Engine) -> float:
    return engine.metrics.registry.get_sample_value("longmatch_encoded_blocks_total") or 0.0


@pytest.fixture
def failing(engine: Engine, stepped_encoder: Any) -> Iterator[Engine]:
    """Return the engine with an encoder that fails at the word "poison"."""
    encoder = stepped_encoder()
    encoder.fails = engine.encoder.read("poison").blocks[0][0]
    scheduler = EncodeScheduler(encoder, max_queue_tokens=4096, metrics=Metrics())
    yield with_parts(engine, scheduler=scheduler)
    scheduler.close()


def test_an_unchanged_text_is_not_encoded_again(engine: Engine) -> None:
    first = put(engine, Document("a", "Ants dig. " * 30))
    before = encoded_blocks(engine)
    again = put(engine, Document("a", "Ants dig. " * 30, "A new title", {"new": True}))
    assert encoded_blocks(engine) == before
    assert again.documents[0].unchanged
    assert again.documents[0].receipt == first.documents[0].receipt
    assert asyncio.run(find_document(engine.default, "a")).document.title == "A new title"
    assert len(engine.default.data.index) == 1


def test_nothing_is_stored_when_one_text_fails_to_encode(failing: Engine) -> None:
    with pytest.raises(EncodingFailedError):
        put(failing, Document("a", "Good."), Document("b", "Drink poison."))
    assert len(failing.default.data.store) == len(failing.default.data.index) == 0
    assert failing.scheduler.queue.queued_tokens == 0


def test_a_client_that_leaves_before_the_write_stores_nothing(engine: Engine) -> None:
    go_on = threading.Event()
    engine.default.writer.submit(go_on.wait, 10)

    async def run() -> None:
        leaving = asyncio.create_task(index_documents(engine.default, [Document("a", "Ants dig.")]))
        while engine.default.writer._work_queue.empty():
            await asyncio.sleep(0.001)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        go_on.set()

    asyncio.run(run())
    engine.default.writer.submit(lambda: None).result(10)
    assert len(engine.default.data.store) == len(engine.default.data.index) == 0


def test_a_text_replaced_meanwhile_gets_the_right_vector(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, Document("a", "Ants dig."))
    with monkeypatch.context() as patched:
        read = engine.default.data.store.content_hashes

        def read_then_replace(document_ids: list[str]) -> dict[str, bytes]:
            patched.undo()
            hashes = read(document_ids)
            put(engine, Document("a", "Judges weigh evidence."))
            return hashes

        patched.setattr(engine.default.data.store, "content_hashes", read_then_replace)
        put(engine, Document("a", "Ants dig."))
    assert asyncio.run(find_document(engine.default, "a")).document.text == "Ants dig."
    assert best(engine, "Ants dig.") == ("a", pytest.approx(1.0, abs=1e-4))


def test_writes_at_the_same_time_leave_store_and_index_in_step(engine: Engine) -> None:
    async def run() -> None:
        documents = (Document(f"d{n % 3}", f"Text number {n}.") for n in range(24))
        await asyncio.gather(*(index_documents(engine.default, [item]) for item in documents))

    asyncio.run(run())
    assert len(engine.default.data.store) == len(engine.default.data.index) == 3
    for name in ("d0", "d1", "d2"):
        text = asyncio.run(find_document(engine.default, name)).document.text
        assert best(engine, text) == (name, pytest.approx(1.0, abs=1e-4))

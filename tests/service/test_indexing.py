"""Indexing: atomic, durable, found at once, and nothing is encoded twice."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from index.document import Document
from index.search.records import SearchOptions
from service import indexing
from service.documents import IndexedDocuments, delete_document, find_document, index_documents
from service.encode import RequestText
from service.engine import Engine
from service.errors import (
    DocumentNotFoundError,
    EncodingFailedError,
    InvalidInputError,
    RequestTooLargeError,
)
from service.matching.match import MatchOptions, match
from service.matching.queries import StoredQuery
from service.metrics import create_metrics
from service.workers.scheduler import EncodeScheduler
from tests.tools.service_fixtures import with_parts


def put(engine: Engine, *documents: Document, **more: Any) -> IndexedDocuments:
    return asyncio.run(index_documents(engine.default, documents, **more))


def best(engine: Engine, text: str) -> tuple[str, float]:
    (found,) = asyncio.run(
        match(
            engine.default,
            [RequestText("#/text", text)],
            MatchOptions(search=SearchOptions(top_k=1)),
        )
    )
    return found.matches[0].id, found.matches[0].score


def encoded_blocks(engine: Engine) -> float:
    return engine.metrics.registry.get_sample_value("longmatch_encoded_blocks_total") or 0.0


@pytest.fixture
def failing(engine: Engine, stepped_encoder: Any) -> Iterator[Engine]:
    """Return the engine with an encoder that fails at the word "poison"."""
    encoder = stepped_encoder()
    encoder.fails = engine.tokenizer("poison").blocks[0][0]
    scheduler = EncodeScheduler(encoder, max_queue_tokens=4096, metrics=create_metrics())
    yield with_parts(engine, scheduler=scheduler)
    scheduler.close()


def test_what_is_indexed_is_found_by_the_next_match(engine: Engine) -> None:
    answer = put(engine, Document("a", "Ants dig."), Document("b", "Bees fly.", "Bees", {"n": 1}))
    assert [(one.id, one.unchanged) for one in answer.documents] == [("a", False), ("b", False)]
    assert best(engine, "Bees fly.")[0] == "b"
    assert len(engine.default.data.index) == len(engine.default.data.store) == 2
    stored = asyncio.run(find_document(engine.default, "b"))
    assert (stored.document.title, stored.document.metadata) == ("Bees", {"n": 1})
    assert stored.receipt == answer.documents[1].receipt
    assert stored.receipt == engine.tokenizer("Bees fly.").receipt


def test_an_unchanged_text_is_not_encoded_again(engine: Engine) -> None:
    first = put(engine, Document("a", "Ants dig. " * 30))
    before = encoded_blocks(engine)
    again = put(engine, Document("a", "Ants dig. " * 30, "A new title", {"new": True}))
    assert encoded_blocks(engine) == before
    assert again.documents[0].unchanged
    assert again.documents[0].receipt == first.documents[0].receipt
    assert asyncio.run(find_document(engine.default, "a")).document.title == "A new title"
    assert len(engine.default.data.index) == 1


def test_a_new_text_replaces_the_old_one(engine: Engine) -> None:
    put(engine, Document("a", "Ants dig tunnels."), Document("b", "Rivers run to the sea."))
    answer = put(engine, Document("a", "Judges weigh evidence."))
    assert not answer.documents[0].unchanged
    assert best(engine, "Judges weigh evidence.") == ("a", pytest.approx(1.0, abs=1e-4))
    assert best(engine, "Ants dig tunnels.")[1] < 0.999
    assert len(engine.default.data.index) == 2


def test_some_unchanged_and_some_new_come_back_in_order(engine: Engine) -> None:
    put(engine, Document("b", "Bees fly."))
    answer = put(
        engine, *(Document(n, t) for n, t in [("a", "A."), ("b", "Bees fly."), ("c", "C.")])
    )
    assert [(one.id, one.unchanged) for one in answer.documents] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


def test_nothing_is_stored_when_one_text_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidInputError) as caught:
        put(engine, Document("a", "Good."), Document("b", "\x00"), Document("c", "\u200b"))
    assert [error.pointer for error in caught.value.errors] == [
        "#/documents/1/text",
        "#/documents/2/text",
    ]
    assert len(engine.default.data.store) == len(engine.default.data.index) == 0


def test_nothing_is_stored_when_one_text_fails_to_encode(failing: Engine) -> None:
    with pytest.raises(EncodingFailedError):
        put(failing, Document("a", "Good."), Document("b", "Drink poison."))
    assert len(failing.default.data.store) == len(failing.default.data.index) == 0
    assert failing.scheduler.queued_tokens == 0


def test_strict_stores_nothing_of_a_text_that_is_too_long(engine: Engine) -> None:
    long = "Ants carry leaves to the colony. " * 300
    with pytest.raises(InvalidInputError) as caught:
        put(engine, Document("a", "Short."), Document("b", long), strict=True)
    (error,) = caught.value.errors
    assert error.pointer == "#/documents/1/text"
    assert error.tokens == engine.tokenizer(long).receipt.tokens
    assert len(engine.default.data.store) == 0
    assert put(engine, Document("b", long)).documents[0].receipt.blocks_left_out > 0


def test_more_tokens_than_the_queue_holds_are_refused_with_the_limit(engine: Engine) -> None:
    long = "Ants carry leaves to the colony. " * 300
    with pytest.raises(RequestTooLargeError) as caught:
        put(engine, *(Document(str(number), long) for number in range(9)))
    assert caught.value.limit == 4096
    assert caught.value.tokens > 4096
    assert len(engine.default.data.store) == 0
    put(engine, *(Document(str(number), long) for number in range(3)))


def test_an_id_twice_is_refused_by_place(engine: Engine) -> None:
    with pytest.raises(InvalidInputError) as caught:
        put(engine, Document("a", "One."), Document("b", "Two."), Document("a", "Three."))
    (error,) = caught.value.errors
    assert error.pointer == "#/documents/2/id"


def test_too_many_documents_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidInputError) as caught:
        put(engine, *(Document(str(number), "A.") for number in range(257)))
    (error,) = caught.value.errors
    assert (error.pointer, error.limit) == ("#/documents", 256)


def test_a_deleted_document_is_gone_for_good(engine: Engine) -> None:
    put(engine, Document("a", "Ants dig."), Document("b", "Bees fly."))
    asyncio.run(delete_document(engine.default, "a"))
    assert best(engine, "Ants dig.")[0] == "b"
    for work in (
        delete_document(engine.default, "a"),
        find_document(engine.default, "a"),
        match(
            engine.default, [StoredQuery("#/id", "a")], MatchOptions(search=SearchOptions(top_k=1))
        ),
    ):
        with pytest.raises(DocumentNotFoundError, match="'a'"):
            asyncio.run(work)
    assert len(engine.default.data.index) == 1


def test_a_client_that_leaves_during_the_write_does_not_leave_the_index_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on, write = threading.Event(), threading.Event(), indexing._put

    def slow_write(*arguments: Any) -> float:
        writing.set()
        assert go_on.wait(10)
        return write(*arguments)

    monkeypatch.setattr(indexing, "_put", slow_write)

    async def run() -> None:
        leaving = asyncio.create_task(index_documents(engine.default, [Document("a", "Ants dig.")]))
        await asyncio.to_thread(writing.wait, 10)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        go_on.set()

    asyncio.run(run())
    engine.default.writer.submit(lambda: None).result(10)
    assert len(engine.default.data.store) == len(engine.default.data.index) == 1
    assert best(engine, "Ants dig.")[0] == "a"


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


class ChangingStore:
    """A store in which another request replaces a text just after its hash was read."""

    def __init__(self, engine: Engine, change: Document) -> None:
        self._engine = engine
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine.default.data.store, name)

    def content_hashes(self, document_ids: list[str]) -> dict[str, bytes]:
        hashes = self._engine.default.data.store.content_hashes(document_ids)
        put(self._engine, self._change)
        return hashes


def test_a_text_that_another_request_replaces_meanwhile_gets_its_own_vector(
    engine: Engine,
) -> None:
    put(engine, Document("a", "Ants dig."))
    store = ChangingStore(engine, Document("a", "Judges weigh evidence."))
    racing = with_parts(engine, data=replace(engine.default.data, store=store))
    put(racing, Document("a", "Ants dig."))
    assert asyncio.run(find_document(engine.default, "a")).document.text == "Ants dig."
    assert best(engine, "Ants dig.") == ("a", pytest.approx(1.0, abs=1e-4))


def test_writes_at_the_same_time_leave_store_and_index_in_step(engine: Engine) -> None:
    async def run() -> None:
        await asyncio.gather(
            *(
                index_documents(
                    engine.default, [Document(f"d{number % 3}", f"Text number {number}.")]
                )
                for number in range(24)
            )
        )

    asyncio.run(run())
    assert len(engine.default.data.store) == len(engine.default.data.index) == 3
    for name in ("d0", "d1", "d2"):
        text = asyncio.run(find_document(engine.default, name)).document.text
        assert best(engine, text) == (name, pytest.approx(1.0, abs=1e-4))

"""The scheduler: every caller gets a result or an error, and no work is wasted."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from service.errors import ShuttingDownError
from service.workers.queue import EncodeResult
from service.workers.scheduler import EncodeScheduler, current_reservation, use_reservation
from tests.service.workers.conftest import Make, begun, encode, settle, start, within_time


@pytest.mark.parametrize(("threads", "batch_tokens"), [(1, 0), (3, 0), (3, 64)])
def test_every_block_reaches_its_place(
    schedule: Callable[..., EncodeScheduler],
    stepped_encoder: Any,
    make_document: Make,
    threads: int,
    batch_tokens: int,
) -> None:
    encoder = stepped_encoder(threads=threads, batch_tokens=batch_tokens)
    scheduler = schedule(encoder)
    documents = [
        make_document(*([number] * (block + 1) for block in range(number)))
        for number in range(1, 12)
    ]

    async def all_at_once() -> list[list[EncodeResult]]:
        some, others = documents[:6], documents[6:]
        return await asyncio.gather(
            encode(scheduler, *some), *(encode(scheduler, document) for document in others)
        )

    first, *rest = within_time(all_at_once())
    got = [item.vector.tolist() for item in [*first, *(item for (item,) in rest)]]
    assert got == [encoder.expected(document) for document in documents]
    assert sum(len(call) for call in encoder.calls) == sum(len(d.blocks) for d in documents)


def test_a_client_that_left_frees_its_tokens_at_once(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)

    async def run() -> None:
        leaving = start(scheduler, make_document(*([1] for _ in range(99))))
        await begun(encoder)
        assert scheduler.queue.queued_tokens == 99
        leaving.cancel()
        await settle()
        assert leaving.cancelled()
        assert scheduler.queue.queued_tokens == 0
        encoder.let()
        await encode(scheduler, make_document([2]))

    within_time(run())
    assert encoder.calls == [[(1,)], [(2,)]]
    assert scheduler.queue.queued_tokens == 0


def test_an_answer_that_comes_after_the_client_left_is_dropped(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        leaving = start(scheduler, make_document([1]))
        await begun(encoder)
        encoder.let()
        scheduler.close()  # the answer, whichever it is, is on its way to this loop now
        leaving.cancel()
        await settle()
        assert leaving.cancelled()

    within_time(run())
    assert complaints == []


def test_closing_leaves_no_caller_waiting(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)

    async def run() -> None:
        waiters = [start(scheduler, make_document([number], [number])) for number in range(5)]
        await begun(encoder)
        closing = threading.Thread(target=scheduler.close)
        closing.start()
        for outcome in await asyncio.gather(*waiters, return_exceptions=True):
            assert isinstance(outcome, ShuttingDownError)
        encoder.let()
        await asyncio.to_thread(closing.join, 10)
        assert not closing.is_alive()
        with pytest.raises(ShuttingDownError):
            scheduler.reserve(1)

    within_time(run())
    assert len(encoder.calls) == 1
    assert not scheduler.alive
    assert scheduler.queue.queued_tokens == 0


def test_no_documents_need_no_encoder(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any
) -> None:
    assert within_time(encode(schedule(stepped_encoder(opened=False)))) == []


def test_the_measured_rate_includes_all_work_of_the_threads(
    schedule: Callable[..., EncodeScheduler],
    stepped_encoder: Any,
    make_document: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = stepped_encoder(threads=2)
    scheduler = schedule(encoder)
    whole = encoder.encode_document

    def slow(*arguments: Any) -> Any:
        time.sleep(0.05)
        return whole(*arguments)

    monkeypatch.setattr(encoder, "encode_document", slow)
    for _ in range(10):
        within_time(encode(scheduler, make_document([1] * 10)))
    assert 0 < scheduler.queue.rate <= 2 * 10 / 0.05


def test_a_reservation_that_ended_is_not_used_again(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any
) -> None:
    scheduler = schedule(stepped_encoder())
    with (
        scheduler.reserve(1) as reservation,
        use_reservation(reservation),
        current_reservation(scheduler, 5) as current,
    ):
        assert current is reservation
    with use_reservation(reservation), current_reservation(scheduler, 5) as current:
        assert (current is reservation, current.tokens) == (False, 5)

"""The scheduler: every caller gets a result or an error, and no work is wasted."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from encoder.blocks import SentenceBlocks
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from service.errors import EncodingFailedError, NotReadyError, OverloadedError, ShuttingDownError
from service.metrics import create_metrics
from service.workers.scheduler import EncodeScheduler
from service.workers.work import EncodeResult

T = TypeVar("T")
Make = Callable[..., SentenceBlocks]
BOUND = 10_000


@pytest.fixture
def schedule() -> Iterator[Callable[..., EncodeScheduler]]:
    """Return a maker of schedulers, which are closed at the end."""
    made: list[tuple[EncodeScheduler, Any]] = []

    def make(encoder: Any, max_queue_tokens: int = BOUND) -> EncodeScheduler:
        scheduler = EncodeScheduler(
            encoder, max_queue_tokens=max_queue_tokens, metrics=create_metrics()
        )
        made.append((scheduler, encoder))
        return scheduler

    yield make
    for scheduler, encoder in made:
        if hasattr(encoder, "let"):
            encoder.let()
        scheduler.close()


async def encode(scheduler: EncodeScheduler, *documents: SentenceBlocks) -> list[EncodeResult]:
    with scheduler.reserve(sum(document.receipt.tokens for document in documents)) as reservation:
        return await scheduler.encode(documents, reservation)


def start(
    scheduler: EncodeScheduler, *documents: SentenceBlocks
) -> "asyncio.Task[list[EncodeResult]]":
    return asyncio.create_task(encode(scheduler, *documents))


def within_time(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; a waiter that is left waiting is a failure, not a hanging test."""
    return asyncio.run(asyncio.wait_for(work, 20))


async def settle() -> None:
    """Let every task that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(encoder: Any) -> None:
    """Wait until one more call of the encoder has begun."""
    await asyncio.to_thread(encoder.wait_for_call)


def test_vectors_are_those_of_the_encoder(
    schedule: Callable[..., EncodeScheduler], tiny_checkpoint: Path, texts: dict[str, str]
) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    encoder, tokenizer = OnnxEncoder(checkpoint, threads=2), BlockTokenizer(checkpoint)
    documents = [tokenizer(text * times) for times in (1, 7) for text in texts.values()]
    scheduler = schedule(encoder)

    async def all_at_once() -> list[list[EncodeResult]]:
        return await asyncio.gather(*(encode(scheduler, document) for document in documents))

    got = np.stack([one.vector for (one,) in within_time(all_at_once())])
    assert np.allclose(got, encoder.encode(documents).document_vectors, atol=1e-6)
    assert scheduler.queued_tokens == 0


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
    got = [one.vector.tolist() for one in [*first, *(one for (one,) in rest)]]
    assert got == [encoder.expected(document) for document in documents]
    assert sum(len(call) for call in encoder.calls) == sum(len(d.blocks) for d in documents)


def test_a_failure_reaches_every_waiter_of_the_call_and_the_next_works(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(batch_tokens=1000, opened=False)
    scheduler = schedule(encoder)
    good, bad = make_document([1], [2]), make_document([3], [encoder.fails])

    async def run() -> None:
        blocker = start(scheduler, make_document([9]))
        await begun(encoder)
        waiters = [start(scheduler, document) for document in (good, bad)]
        await settle()
        encoder.let()
        await blocker
        for outcome in await asyncio.gather(*waiters, return_exceptions=True):
            assert isinstance(outcome, EncodingFailedError)
            assert isinstance(outcome.__cause__, RuntimeError)
        (again,) = await encode(scheduler, good)
        assert again.vector.tolist() == encoder.expected(good)

    within_time(run())
    assert scheduler.alive
    assert scheduler.queued_tokens == 0


def test_a_failing_document_fails_its_whole_request_and_no_other(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)
    other = make_document([5], [6], [7])

    async def run() -> None:
        request = start(
            scheduler,
            make_document([encoder.fails_document]),
            make_document(*([1] for _ in range(50))),
        )
        bystander = start(scheduler, other)
        await begun(encoder)
        encoder.let()
        with pytest.raises(EncodingFailedError):
            await request
        assert (await bystander)[0].vector.tolist() == encoder.expected(other)

    within_time(run())
    assert len(encoder.calls) < 10
    assert scheduler.queued_tokens == 0


def test_overload_refuses_at_once_and_computes_nothing_for_it(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder, max_queue_tokens=10)

    async def run() -> None:
        running = start(scheduler, make_document([1] * 8))
        await begun(encoder)
        with pytest.raises(OverloadedError) as caught:
            await encode(scheduler, make_document([2] * 3))
        assert caught.value.retry_after >= 1
        encoder.let()
        await running
        await encode(scheduler, make_document([2] * 3))

    within_time(run())
    assert encoder.calls == [[(1,) * 8], [(2,) * 3]]


def test_a_page_behind_a_book_is_done_before_the_book(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)
    book, page = make_document(*([1] for _ in range(500))), make_document([2], [2])

    async def run() -> None:
        reading = start(scheduler, book)
        await begun(encoder)
        quick = start(scheduler, page)
        await settle()
        encoder.let(5)
        await quick
        assert not reading.done()
        encoder.let()
        await reading

    within_time(run())
    assert [call[0][0] for call in encoder.calls[:5]] == [1, 2, 2, 1, 1]


def test_a_client_that_left_costs_no_more_and_frees_its_tokens_at_once(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)

    async def run() -> None:
        leaving = start(scheduler, make_document(*([1] for _ in range(99))))
        await begun(encoder)
        assert scheduler.queued_tokens == 99
        leaving.cancel()
        await settle()
        assert leaving.cancelled()
        assert scheduler.queued_tokens == 0
        encoder.let()
        await encode(scheduler, make_document([2]))

    within_time(run())
    assert encoder.calls == [[(1,)], [(2,)]]
    assert scheduler.queued_tokens == 0


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
    assert scheduler.queued_tokens == 0


def test_closing_twice_is_closing_once(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any
) -> None:
    scheduler = schedule(stepped_encoder(threads=3))
    assert scheduler.alive
    scheduler.close()
    scheduler.close()
    assert not scheduler.alive


def test_when_a_worker_dies_all_waiting_callers_get_an_error(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(threads=2, opened=False)
    scheduler = schedule(encoder)

    async def run() -> None:
        deadly = start(scheduler, make_document([encoder.kills]))
        others = [start(scheduler, make_document([1])) for _ in range(4)]
        await begun(encoder)
        await begun(encoder)
        encoder.let()
        with pytest.raises(NotReadyError):
            await deadly
        for outcome in await asyncio.gather(*others, return_exceptions=True):
            # The other worker may have finished what it had begun.
            assert isinstance(outcome, NotReadyError | list)
        with pytest.raises(NotReadyError):
            await encode(scheduler, make_document([1]))

    within_time(run())
    assert not scheduler.alive


def test_a_loop_that_is_gone_does_not_harm_the_workers(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(opened=False)
    scheduler = schedule(encoder)
    loop = asyncio.new_event_loop()
    reservation = scheduler.reserve(1)

    async def submit() -> asyncio.Task[Any]:
        task = asyncio.ensure_future(scheduler.encode([make_document([1])], reservation))
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(submit())
    encoder.wait_for_call()
    loop.close()
    encoder.let()
    (after,) = within_time(encode(scheduler, make_document([2])))
    assert after.vector.tolist() == [1.0, 2.0]
    assert scheduler.alive
    assert not task.done()


def test_a_document_without_blocks_is_refused_rather_than_waited_for(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    scheduler = schedule(stepped_encoder())
    with pytest.raises(ValueError, match="without a sentence block"):
        within_time(encode(scheduler, make_document([1]), make_document()))


def test_no_documents_need_no_encoder(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any
) -> None:
    scheduler = schedule(stepped_encoder(opened=False))
    assert within_time(encode(scheduler)) == []


def test_what_is_computed_is_counted(stepped_encoder: Any, make_document: Make) -> None:
    metrics = create_metrics()
    scheduler = EncodeScheduler(stepped_encoder(), max_queue_tokens=BOUND, metrics=metrics)
    documents: Sequence[SentenceBlocks] = [make_document([1, 2], [3]), make_document([4])]
    within_time(encode(scheduler, *documents))
    scheduler.close()
    value = metrics.registry.get_sample_value
    assert value("longmatch_encoded_tokens_total") == 4
    assert value("longmatch_encoded_blocks_total") == 3
    assert value("longmatch_queue_tokens") == 0
    for stage in ("queue", "encode"):
        assert value("longmatch_stage_duration_seconds_count", {"stage": stage}) == 2


def test_a_worker_outlives_what_fails_around_the_encoder(
    schedule: Callable[..., EncodeScheduler],
    stepped_encoder: Any,
    make_document: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = schedule(stepped_encoder())

    def broken(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(scheduler._queue, "store_vectors", broken)
        with pytest.raises(EncodingFailedError):
            within_time(encode(scheduler, make_document([1], [2])))
    assert scheduler.alive
    assert len(within_time(encode(scheduler, make_document([1], [2])))) == 1


def test_an_answer_that_cannot_be_counted_is_given_all_the_same(
    schedule: Callable[..., EncodeScheduler],
    stepped_encoder: Any,
    make_document: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = schedule(stepped_encoder())

    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(scheduler._metrics.stage_duration, "labels", broken)
    assert len(within_time(encode(scheduler, make_document([1], [2])))) == 1
    assert scheduler.alive


def test_the_measured_rate_is_of_all_that_the_threads_do_for_their_tokens(
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
    assert 0 < scheduler._queue.rate <= 2 * 10 / 0.05

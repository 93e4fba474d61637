"""The scheduler when the encoder, a worker or the event loop of a caller fails."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter
from typing import Any

import pytest

from service.errors import EncodingFailedError, NotReadyError
from service.workers.scheduler import EncodeScheduler
from tests.service.workers.conftest import Make, begun, encode, settle, start, within_time


def test_a_failure_reaches_every_waiter_of_the_call(
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
    assert scheduler.queue.queued_tokens == 0


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
    assert scheduler.queue.queued_tokens == 0


def test_a_document_that_fails_in_a_packed_call_fails_no_other(
    schedule: Callable[..., EncodeScheduler], stepped_encoder: Any, make_document: Make
) -> None:
    encoder = stepped_encoder(batch_tokens=1000, opened=False)
    scheduler = schedule(encoder)
    others = [make_document([5], [6]), make_document([7])]

    async def run() -> None:
        first = start(scheduler, make_document([1]))
        await begun(encoder)  # while it is encoded, the others gather for one packed call
        request = start(scheduler, make_document([encoder.fails_document]))
        bystanders = [start(scheduler, other) for other in others]
        await asyncio.sleep(0)
        encoder.let()
        await first
        with pytest.raises(EncodingFailedError):
            await request
        for bystander, document in zip(bystanders, others, strict=True):
            assert (await bystander)[0].vector.tolist() == encoder.expected(document)

    within_time(run())
    assert encoder.packed_documents == [3]


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
    setattr(task, "_log_destroy_pending", False)  # noqa: B010  it is left behind on purpose
    encoder.wait_for_call()
    loop.close()
    encoder.let()
    (after,) = within_time(encode(scheduler, make_document([2])))
    assert after.vector.tolist() == [1.0, 2.0]
    assert scheduler.alive
    assert not task.done()


@pytest.mark.parametrize(
    ("part", "name", "answered"),
    [("queue", "store_vectors", False), ("_metrics.stage_duration", "labels", True)],
)
def test_a_worker_outlives_what_fails_around_the_encoder(
    schedule: Callable[..., EncodeScheduler],
    stepped_encoder: Any,
    make_document: Make,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    name: str,
    answered: bool,
) -> None:
    scheduler = schedule(stepped_encoder())

    def broken(*_: object) -> None:
        raise MemoryError

    expected = nullcontext() if answered else pytest.raises(EncodingFailedError)
    with monkeypatch.context() as patched, expected:
        patched.setattr(attrgetter(part)(scheduler), name, broken)
        assert len(within_time(encode(scheduler, make_document([1], [2])))) == 1
    assert scheduler.alive
    assert len(within_time(encode(scheduler, make_document([1], [2])))) == 1

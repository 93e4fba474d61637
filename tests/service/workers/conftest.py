"""Schedulers that are closed after the test, and callers that wait no longer than it may take."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from encoder.blocks import SentenceBlocks
from service.metrics import Metrics
from service.workers.queue import EncodeResult
from service.workers.scheduler import EncodeScheduler

T = TypeVar("T")
Make = Callable[..., SentenceBlocks]
BOUND = 10_000


@pytest.fixture
def schedule() -> Iterator[Callable[..., EncodeScheduler]]:
    """Return a maker of schedulers, which are closed at the end."""
    made: list[tuple[EncodeScheduler, Any]] = []

    def make(encoder: Any, max_queue_tokens: int = BOUND) -> EncodeScheduler:
        scheduler = EncodeScheduler(encoder, max_queue_tokens=max_queue_tokens, metrics=Metrics())
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
    return asyncio.run(asyncio.wait_for(work, 120))


async def settle() -> None:
    """Let every task that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(encoder: Any) -> None:
    """Wait until one more call of the encoder has begun."""
    await asyncio.to_thread(encoder.wait_for_call)

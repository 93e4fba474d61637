"""The scheduler with a recurrent encoder: one block of a document after another."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encoder.blocks import SentenceBlocks
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from service.workers.queue import EncodeResult
from service.workers.scheduler import EncodeScheduler
from tests.service.workers.conftest import encode, within_time

BOUND = 100_000
PAGE = "The river runs to the sea. "


@pytest.fixture(scope="module")
def encoder(tiny_ernie_doc: Path) -> OnnxEncoder:
    return OnnxEncoder(load_checkpoint(tiny_ernie_doc), precision="fp32", threads=3)


@pytest.fixture(params=[1, 3])
def scheduler(
    schedule: Callable[..., EncodeScheduler], encoder: OnnxEncoder, request: pytest.FixtureRequest
) -> EncodeScheduler:
    encoder.threads = request.param
    return schedule(encoder, BOUND)


@pytest.fixture(scope="module")
def documents(encoder: OnnxEncoder) -> list[SentenceBlocks]:
    tokenizer = BlockTokenizer(encoder.checkpoint)
    return [tokenizer(f"{PAGE * times} Number {times}.") for times in (1, 40, 7, 3, 90, 20)]


def test_vectors_are_those_of_the_encoder(
    scheduler: EncodeScheduler, encoder: OnnxEncoder, documents: list[SentenceBlocks]
) -> None:
    async def run() -> list[EncodeResult]:
        together = encode(scheduler, *documents)  # one request of all, and one of each
        each = [encode(scheduler, document) for document in documents]
        answers = await asyncio.gather(together, *each)
        return [result for answer in answers for result in answer]

    found = within_time(run())
    expected = encoder.encode(documents)
    for results in (found[: len(documents)], found[len(documents) :]):
        vectors = np.stack([first.vector for first in results])
        assert np.abs(vectors - expected.document_vectors).max() < 1e-6
        for first, blocks in zip(results, expected.block_vectors, strict=True):
            assert np.array_equal(first.block_vectors, blocks)
    assert scheduler.queue.queued_tokens == 0


def test_a_page_behind_a_book_is_done_before_the_book(
    scheduler: EncodeScheduler, documents: list[SentenceBlocks]
) -> None:
    async def run() -> None:
        books = [asyncio.create_task(encode(scheduler, *[documents[4]] * 4)) for _ in range(3)]
        await asyncio.sleep(0.01)
        await encode(scheduler, documents[0])
        assert not any(book.done() for book in books)
        await asyncio.gather(*books)

    within_time(run())
    assert scheduler.queue.queued_tokens == 0

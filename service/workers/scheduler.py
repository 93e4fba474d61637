"""The workers in front of the encoder: one bounded queue of work, counted in tokens.

The unit of work is the sentence block. Worker threads take the blocks of the requests in fair
turns (`service.workers.fair_queue`), so that a book does not hold up a page; who finishes the last
block of a document also encodes the document and answers its waiter. Blocks whose vectors are
remembered are not encoded again, and nothing is computed for a request whose deadline has passed.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from encoder.blocks import SentenceBlocks
from encoder.onnx_encoder import OnnxEncoder
from service.errors import (
    DeadlinePassedError,
    EncodingFailedError,
    NotReadyError,
    ServiceError,
    ShuttingDownError,
)
from service.metrics import Metrics
from service.threads import lower_priority
from service.workers.block_cache import BlockMemory
from service.workers.queue import BlockQueue
from service.workers.work import DOCUMENT_ONLY, Block, EncodeResult, EncodeTask, Reservation

_LOG = logging.getLogger(__name__)


class EncodeScheduler:
    """Gives the sentence blocks of all requests to the encoder, in turns."""

    def __init__(
        self,
        encoder: OnnxEncoder,
        *,
        max_queue_tokens: int,
        metrics: Metrics,
        max_queue_seconds: float = math.inf,
        memory: BlockMemory | None = None,
    ) -> None:
        """Start the worker threads.

        Args:
            encoder: called from `encoder.threads` threads; from one when it takes batches.
            max_queue_tokens: tokens that may be reserved at a time.
            metrics: where to count.
            max_queue_seconds: work that may be ahead of a new request.
            memory: of block vectors, if there is one.
        """
        self._encoder = encoder
        self._metrics = metrics
        self._memory = memory
        self._queue = BlockQueue(
            max_queue_tokens,
            batch_tokens=encoder.batch_tokens,
            on_change=metrics.queue_tokens.set,
            max_seconds=max_queue_seconds,
            on_expired=_give_up,
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"encode-{number}", daemon=True)
            for number in range(1 if encoder.batch_tokens else encoder.threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued_tokens(self) -> int:
        """Tokens reserved and not encoded yet."""
        return self._queue.queued_tokens

    @property
    def alive(self) -> bool:
        """Whether every worker thread works."""
        return not self._queue.closed and all(thread.is_alive() for thread in self._threads)

    @property
    def tokens_per_second(self) -> float:
        """How fast it encodes, as measured; 0 when nothing was."""
        return self._queue.rate

    def expect(self, tokens_per_second: float) -> None:
        """Say how fast one thread encodes, so that the first request is judged by it."""
        self._note_rate(tokens_per_second, 1.0)

    def reserve(
        self, tokens: int, *, background: bool = False, deadline: float = math.inf
    ) -> Reservation:
        """Take a place for about `tokens` tokens, or refuse at once. To be used in `with`.

        A single request, however large it seems, is admitted to an empty queue. What is in the
        background is never refused, takes no room from requests and lets them go first.

        Args:
            tokens: of the request, estimated.
            background: nobody waits for it.
            deadline: by `time.monotonic`; nothing is computed from then on.

        Raises:
            OverloadedError: there is no room, or too much work is ahead.
            UnavailableError: the scheduler is closing or broken.
        """
        return self._queue.reserve(tokens, background=background, deadline=deadline)

    async def encode(
        self, documents: Sequence[SentenceBlocks], place: Reservation
    ) -> list[EncodeResult]:
        """Encode the documents of one request; when one fails, all do.

        Args:
            documents: each with at least one sentence block.
            place: their place; the call must end before it is given back.

        Raises:
            DeadlinePassedError: it was too late to begin with it.
            EncodingFailedError: the encoder failed.
            UnavailableError: the scheduler is closing or broken.
        """
        if not all(document.blocks for document in documents):
            raise ValueError("a document without a sentence block cannot be encoded")
        tasks = await self._tasks(documents)
        if self._memory is not None:
            place.resize(sum(task.pending_tokens for task in tasks))
        self._queue.submit(place, tasks)
        encoded = await asyncio.gather(*(task.waiter for task in tasks))
        if self._memory is not None:
            for task in tasks:
                self._memory.remember(task.blocks, task.vectors, task.pending)
        return encoded

    async def _tasks(self, documents: Sequence[SentenceBlocks]) -> list[EncodeTask]:
        """Return what is to do, with the block vectors that are remembered."""
        loop = asyncio.get_running_loop()
        width = self._encoder.checkpoint.block_dimension
        blocks = [document.blocks for document in documents]
        vectors = [np.empty((len(one), width), dtype=np.float32) for one in blocks]
        known = [frozenset[int]()] * len(blocks)
        if self._memory is not None:
            known = await self._memory.recall(blocks, vectors)
        submitted = time.perf_counter()
        return [
            EncodeTask(one, rows, loop.create_future(), submitted, there)
            for one, rows, there in zip(blocks, vectors, known, strict=True)
        ]

    def close(self) -> None:
        """Stop the workers; who still waits gets ShuttingDownError."""
        self._stop(ShuttingDownError)
        for thread in self._threads:
            thread.join()

    def _stop(self, error: Callable[[], ServiceError]) -> None:
        _answer_all(self._queue.close(error), error)

    def _work(self) -> None:
        lower_priority()
        try:
            while blocks := self._queue.take():
                started = time.perf_counter()
                try:
                    if tokens := self._compute(blocks):
                        self._note_rate(tokens, time.perf_counter() - started)
                except Exception as error:  # out of memory, say: others can be served
                    self._fail({block.reservation for block in blocks}, error)
        except BaseException as error:
            _LOG.critical("an encoder thread died", exc_info=error)
            self._stop(partial(NotReadyError, "an encoder thread died"))

    def _compute(self, blocks: Sequence[Block]) -> int:
        """Do one turn; return the tokens that were encoded."""
        for block in blocks:
            if block.row == DOCUMENT_ONLY:
                self._finish(block.reservation, block.task)
        blocks = [block for block in blocks if block.row != DOCUMENT_ONLY]
        return self._encode(blocks) if blocks else 0

    def _encode(self, blocks: Sequence[Block]) -> int:
        try:
            vectors = self._encoder.encode_blocks([block.tokens for block in blocks])
        except Exception as error:
            self._fail({block.reservation for block in blocks}, error)
            return 0
        tokens = sum(len(block.tokens) for block in blocks)
        self._metrics.encoded_blocks.inc(len(blocks))
        self._metrics.encoded_tokens.inc(tokens)
        for block in self._queue.store_vectors(blocks, vectors):
            self._finish(block.reservation, block.task)
        return tokens

    def _note_rate(self, tokens: float, seconds: float) -> None:
        """Note what one thread did, with all that it does around the encoder."""
        self._queue.measure(tokens * len(self._threads), seconds)
        self._metrics.encoder_rate.set(self._queue.rate)

    def _finish(self, reservation: Reservation, task: EncodeTask) -> None:
        try:
            vector = self._encoder.encode_document(task.blocks, task.vectors)
        except Exception as error:
            self._fail({reservation}, error)
            return
        now = time.perf_counter()
        encoded = EncodeResult(
            vector, task.vectors, task.started - task.submitted, now - task.started
        )
        if not self._queue.complete(reservation, task):
            return
        try:
            self._metrics.stage_duration.labels("queue").observe(encoded.queue_seconds)
            self._metrics.stage_duration.labels("encode").observe(encoded.encode_seconds)
        finally:  # nobody else would answer it any more
            _answer(task, encoded)

    def _fail(self, reservations: Iterable[Reservation], cause: Exception) -> None:
        _LOG.error("the encoder failed", exc_info=cause)
        for reservation in reservations:
            _answer_all(self._queue.drop(reservation), partial(_encoding_error, cause))


def _encoding_error(cause: Exception) -> EncodingFailedError:
    error = EncodingFailedError()
    error.__cause__ = cause
    return error


def _give_up(tasks: Iterable[EncodeTask]) -> None:
    _answer_all(tasks, DeadlinePassedError)


def _answer_all(tasks: Iterable[EncodeTask], error: Callable[[], ServiceError]) -> None:
    for task in tasks:
        _answer(task, error())


def _answer(task: EncodeTask, outcome: EncodeResult | ServiceError) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        task.waiter.get_loop().call_soon_threadsafe(_settle, task.waiter, outcome)


def _settle(waiter: asyncio.Future[EncodeResult], outcome: EncodeResult | ServiceError) -> None:
    if waiter.done():
        return
    if isinstance(outcome, EncodeResult):
        waiter.set_result(outcome)
    else:
        waiter.set_exception(outcome)

"""The workers in front of the encoder: one bounded queue of work, counted in tokens.

The unit of work is the sentence block. Worker threads take the next block of one request after
the other, so that a book does not hold up a page; who finishes the last block of a document also
encodes the document and answers its waiter.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from encoder.blocks import SentenceBlocks
from encoder.onnx_encoder import OnnxEncoder
from service.block_queue import Block, BlockQueue, Encoded, Job, Reservation
from service.errors import EncodingFailedError, NotReadyError, ServiceError, ShuttingDownError
from service.metrics import Metrics

_LOG = logging.getLogger(__name__)


class EncodeScheduler:
    """Gives the sentence blocks of all requests to the encoder, in turns."""

    def __init__(self, encoder: OnnxEncoder, *, max_queue_tokens: int, metrics: Metrics) -> None:
        """Start the worker threads.

        Args:
            encoder: called from `encoder.threads` threads; from one when it takes batches.
            max_queue_tokens: tokens that may be reserved at a time.
            metrics: where to count.
        """
        self._encoder = encoder
        self._metrics = metrics
        self._queue = BlockQueue(
            max_queue_tokens,
            batch_tokens=encoder.batch_tokens,
            on_change=metrics.queue_tokens.set,
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

    def reserve(self, tokens: int, *, background: bool = False) -> Reservation:
        """Take a place for about `tokens` tokens, or refuse at once. To be used in `with`.

        A single request, however large it seems, is admitted to an empty queue. What is in the
        background is never refused, takes no room from requests and lets them go first.

        Raises:
            OverloadedError: there is no room.
            UnavailableError: the scheduler is closing or broken.
        """
        return self._queue.reserve(tokens, background=background)

    async def encode(
        self, documents: Sequence[SentenceBlocks], place: Reservation
    ) -> list[Encoded]:
        """Encode the documents of one request; when one fails, all do.

        Args:
            documents: each with at least one sentence block.
            place: their place; the call must end before it is given back.

        Raises:
            EncodingFailedError: the encoder failed.
            UnavailableError: the scheduler is closing or broken.
        """
        if not all(document.blocks for document in documents):
            raise ValueError("a document without a sentence block cannot be encoded")
        loop = asyncio.get_running_loop()
        width = self._encoder.checkpoint.block_dimension
        jobs = [
            Job(
                blocks=document.blocks,
                vectors=np.empty((len(document.blocks), width), dtype=np.float32),
                waiter=loop.create_future(),
                submitted=time.perf_counter(),
            )
            for document in documents
        ]
        self._queue.submit(place, jobs)
        return await asyncio.gather(*(job.waiter for job in jobs))

    def close(self) -> None:
        """Stop the workers; who still waits gets ShuttingDownError."""
        self._stop(ShuttingDownError)
        for thread in self._threads:
            thread.join()

    def _stop(self, error: Callable[[], ServiceError]) -> None:
        _answer_all(self._queue.close(error), error)

    def _work(self) -> None:
        try:
            while blocks := self._queue.take():
                self._compute(blocks)
        except BaseException as error:
            _LOG.critical("an encoder thread died", exc_info=error)
            self._stop(partial(NotReadyError, "an encoder thread died"))

    def _compute(self, blocks: Sequence[Block]) -> None:
        started = time.perf_counter()
        try:
            vectors = self._encoder.encode_blocks([block.tokens for block in blocks])
        except Exception as error:
            self._fail({block.reservation for block in blocks}, error)
            return
        tokens = sum(len(block.tokens) for block in blocks)
        self._queue.measure(tokens * len(self._threads) / (time.perf_counter() - started))
        self._metrics.encoded_blocks.inc(len(blocks))
        self._metrics.encoded_tokens.inc(tokens)
        for block in self._queue.keep(blocks, vectors):
            self._finish(block.reservation, block.job)

    def _finish(self, reservation: Reservation, job: Job) -> None:
        try:
            vector = self._encoder.encode_document(job.blocks, job.vectors)
        except Exception as error:
            self._fail({reservation}, error)
            return
        if not self._queue.answered(reservation, job):
            return
        now = time.perf_counter()
        encoded = Encoded(vector, job.vectors, job.started - job.submitted, now - job.started)
        self._metrics.stage_duration.labels("queue").observe(encoded.queue_seconds)
        self._metrics.stage_duration.labels("encode").observe(encoded.encode_seconds)
        _answer(job, encoded)

    def _fail(self, reservations: Iterable[Reservation], cause: Exception) -> None:
        _LOG.error("the encoder failed", exc_info=cause)
        for reservation in reservations:
            _answer_all(self._queue.drop(reservation), partial(_encoding_error, cause))


def _encoding_error(cause: Exception) -> EncodingFailedError:
    error = EncodingFailedError()
    error.__cause__ = cause
    return error


def _answer_all(jobs: Iterable[Job], error: Callable[[], ServiceError]) -> None:
    for job in jobs:
        _answer(job, error())


def _answer(job: Job, outcome: Encoded | ServiceError) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        job.waiter.get_loop().call_soon_threadsafe(_settle, job.waiter, outcome)


def _settle(waiter: asyncio.Future[Encoded], outcome: Encoded | ServiceError) -> None:
    if waiter.done():
        return
    if isinstance(outcome, Encoded):
        waiter.set_result(outcome)
    else:
        waiter.set_exception(outcome)

"""The encoder threads, and one bounded queue of work in front of them, counted in tokens.

The unit of work is the sentence block. Worker threads take blocks in fair order
(`service.workers.queue`), so that a book does not hold up a page; the worker that encodes the
last block of a document also encodes the document and delivers the result. Blocks whose vectors are
cached are not encoded again, and nothing is computed for a request that has ended. The cache may
drop any vector at any time; what it returns has the same bits as what was put.

A recurrent encoder reads the blocks of a document one after another, with a memory: such a document
is taken as a whole, and has no cached block vectors.
"""

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import SentenceBlocks
from encoder.encoder import Encoder
from encoder.errors import EncoderServerError
from service.errors import EncodingFailedError, NotReadyError, ServiceError, ShuttingDownError
from service.metrics import Metrics
from service.threads import lower_priority, run_in
from service.workers.queue import Block, BlockQueue, EncodeResult, EncodeTask, Reservation

KEY_BYTES = 20
_ENTRY_OVERHEAD = 250  # bytes of Python objects for a key and its row number, measured


class EncodeCache:
    """Keeps the most recently used block vectors in the memory of this process.

    Its one thread does all the work, off the event loop. The vectors are rows of one array: memory
    stays at the limit and never fragments. The array is written to at once, so that a lack of
    memory shows at the start and not at some later time.

    Attributes:
        capacity: most vectors that it keeps.
        written: block vectors that were written to it so far.
    """

    def __init__(self, max_bytes: int, dimension: int, metrics: Metrics) -> None:
        """Create an empty cache.

        Args:
            max_bytes: that it may use; less than one vector takes keeps none.
            dimension: H, of a block vector.
            metrics: where to count.
        """
        self.capacity = max_bytes // (4 * dimension + KEY_BYTES + _ENTRY_OVERHEAD)
        self.written = 0
        self._vectors = np.empty((self.capacity, dimension), dtype=np.float32)
        self._vectors.fill(0.0)
        self._rows: OrderedDict[bytes, int] = OrderedDict()  # least recently used first
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, "block-cache", lower_priority)

    async def fill(self, tasks: Sequence[EncodeTask], owner: str) -> None:
        """Fill in the block vectors of documents that are cached; the other rows are left.

        Args:
            tasks: the documents.
            owner: whose entries are read: those of others would tell, by the time that is saved,
                what others have sent.
        """
        await run_in(self._thread, self._fill, tasks, owner)

    def put(self, task: EncodeTask, owner: str) -> None:
        """Store the vectors that were encoded, in the background; never waits, never fails."""
        if task.rows:
            with suppress(RuntimeError):  # it closes
                self._thread.submit(self._put, task, owner)

    def close(self) -> None:
        """Finish what is running and drop what is waiting."""
        self._thread.shutdown(cancel_futures=True)

    def _fill(self, tasks: Sequence[EncodeTask], owner: str) -> None:
        for task in tasks:
            missing: list[int] = []
            for row, key in zip(task.rows, _keys(task, owner), strict=True):
                if key in self._rows:
                    self._rows.move_to_end(key)
                    task.vectors[row] = self._vectors[self._rows[key]]
                else:
                    missing.append(row)
            self._metrics.block_cache_hits.inc(len(task.rows) - len(missing))
            self._metrics.block_cache_misses.inc(len(missing))
            task.rows = missing

    def _put(self, task: EncodeTask, owner: str) -> None:
        for key, row in zip(_keys(task, owner), task.rows, strict=True) if self.capacity else ():
            self._vectors[self._row_for(key)] = task.vectors[row]
        self.written += len(task.rows)

    def _row_for(self, key: bytes) -> int:
        row = self._rows.pop(key, None)
        if row is None:
            full = len(self._rows) == self.capacity
            row = self._rows.popitem(last=False)[1] if full else len(self._rows)
        self._rows[key] = row
        return row


def _keys(task: EncodeTask, owner: str) -> list[bytes]:
    tokens = (np.asarray(task.ids[row], dtype="<i4").tobytes() for row in task.rows)
    space = blake2b(owner.encode(), digest_size=KEY_BYTES).digest()
    return [blake2b(part, digest_size=KEY_BYTES, key=space).digest() for part in tokens]


_LOG = logging.getLogger(__name__)


class EncodeScheduler:
    """Encodes the sentence blocks of all requests in fair order.

    Attributes:
        queue: the blocks that wait.
        reserve: tokens of the queue, see `BlockQueue.reserve`.
        cache: of block vectors, if there is one.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        max_queue_tokens: int,
        metrics: Metrics,
        max_queue_seconds: float = math.inf,
        cache: EncodeCache | None = None,
    ) -> None:
        """Start the worker threads.

        Args:
            encoder: called from `encoder.threads` threads; from one when it takes batches.
            max_queue_tokens: tokens that may be reserved at a time.
            metrics: where to count.
            max_queue_seconds: work that may be queued ahead of a new request.
            cache: of block vectors, if there is one; not for a recurrent encoder.
        """
        self._encoder = encoder
        self._metrics = metrics
        self.cache = cache
        self.queue = BlockQueue(
            max_queue_tokens, batch_tokens=encoder.batch_tokens, max_seconds=max_queue_seconds
        )
        metrics.queue_tokens.set_function(lambda: self.queue.queued_tokens)
        self.reserve = self.queue.reserve
        self._threads = [
            threading.Thread(target=self._work, name=f"encode-{number}", daemon=True)
            for number in range(1 if encoder.batch_tokens else encoder.threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether every worker thread runs."""
        return not self.queue.closed and all(thread.is_alive() for thread in self._threads)

    async def encode(
        self,
        documents: Sequence[SentenceBlocks],
        reservation: Reservation,
        owner: str = "",
    ) -> list[EncodeResult]:
        """Encode the documents of one request; if one fails, all do.

        Args:
            documents: each with at least one sentence block.
            reservation: of the request; the call must return before it ends.
            owner: whose cached block vectors are used: the name of a collection.
        """
        width, whole = self._encoder.checkpoint.block_dimension, self._encoder.recurrent
        tasks = [EncodeTask(document, width, whole) for document in documents]
        if self.cache is not None:
            await self.cache.fill(tasks, owner)
            reservation.resize(sum(len(task.ids[row]) for task in tasks for row in task.rows))
        self.queue.submit(reservation, tasks)
        encoded = await asyncio.gather(*(asyncio.wrap_future(task.waiter) for task in tasks))
        if self.cache is not None:
            for task in tasks:
                self.cache.put(task, owner)
        return encoded

    def close(self) -> None:
        """Stop the workers; callers that still wait get ShuttingDownError."""
        _fail_all(self.queue.close(ShuttingDownError), ShuttingDownError)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        lower_priority()
        try:
            while blocks := self.queue.take():
                started = time.perf_counter()
                try:
                    if tokens := self._compute(blocks):
                        self.measure(tokens, time.perf_counter() - started)
                except Exception as error:  # such as out of memory: other requests can be served
                    self._fail({block.reservation for block in blocks}, error)
        except BaseException as error:
            _LOG.critical("an encoder thread died", exc_info=error)
            died = partial(NotReadyError, "an encoder thread died")
            _fail_all(self.queue.close(died), died)

    def _compute(self, blocks: Sequence[Block]) -> int:
        """Encode the blocks of one call; return the tokens that were encoded."""
        self._finish_all([block for block in blocks if not block.rows])
        blocks = [block for block in blocks if block.rows]
        if not blocks:
            return 0
        try:
            ids = [block.task.ids[row] for block in blocks for row in block.rows]
            vectors = self._encoder.encode_blocks(ids)
        except Exception as error:
            self._fail({block.reservation for block in blocks}, error)
            return 0
        tokens = sum(block.tokens for block in blocks)
        self._metrics.encoded_blocks.inc(len(ids))
        self._metrics.encoded_tokens.inc(tokens)
        self._finish_all(self.queue.store_vectors(blocks, vectors))
        return tokens

    def _finish_all(self, last: Sequence[Block]) -> None:
        """Encode and deliver the documents of these blocks, packed where the encoder packs."""
        vectors: Sequence[Float32 | None] = [None] * len(last)
        if self._encoder.batch_tokens and len(last) > 1:
            tasks = [block.task for block in last]
            try:
                counted = [task.document.blocks for task in tasks]
                found = self._encoder.encode_documents(counted, [task.vectors for task in tasks])
                vectors = list(found)
            except Exception as error:  # one of them may be the cause: each is tried by itself
                _LOG.warning("a packed call of the document level failed", exc_info=error)
        for block, vector in zip(last, vectors, strict=True):
            self._finish(block.reservation, block.task, vector)

    def measure(self, tokens: float, seconds: float) -> None:
        """Record the rate of one thread, including its work around the encoder."""
        self.queue.measure(tokens * len(self._threads), seconds)
        self._metrics.encoder_tokens_per_second.set(self.queue.rate)

    def _finish(
        self, reservation: Reservation, task: EncodeTask, vector: Float32 | None = None
    ) -> None:
        try:
            if vector is None:
                vector = self._encoder.encode_document(task.document.blocks, task.vectors)
        except Exception as error:
            self._fail({reservation}, error)
            return
        now = time.perf_counter()
        encoded = EncodeResult(
            vector, task.vectors, task.started - task.submitted, now - task.started
        )
        if not self.queue.complete(reservation, task):
            return
        try:
            self._metrics.stage_duration.labels("queue").observe(encoded.queue_seconds)
            self._metrics.stage_duration.labels("encode").observe(encoded.encode_seconds)
        finally:  # the task has left the queue: nothing else would deliver its result
            _deliver(task, encoded)

    def _fail(self, reservations: Iterable[Reservation], cause: Exception) -> None:
        _LOG.error("the encoder failed", exc_info=cause)
        for reservation in reservations:
            _fail_all(self.queue.drop(reservation), partial(_encoding_error, cause))


def _encoding_error(cause: Exception) -> ServiceError:
    waiting = isinstance(cause, EncoderServerError)
    error = NotReadyError("the encoder's server fails") if waiting else EncodingFailedError()
    error.__cause__ = cause
    return error


def _fail_all(tasks: Iterable[EncodeTask], error: Callable[[], ServiceError]) -> None:
    for task in tasks:
        _deliver(task, error())


def _deliver(task: EncodeTask, outcome: EncodeResult | ServiceError) -> None:
    if not task.waiter.set_running_or_notify_cancel():
        return  # its caller waits no longer
    if isinstance(outcome, EncodeResult):
        task.waiter.set_result(outcome)
    else:
        task.waiter.set_exception(outcome)


_CURRENT: ContextVar[Reservation | None] = ContextVar("reservation", default=None)


@contextmanager
def use_reservation(reservation: Reservation) -> Iterator[None]:
    """Make a reservation the current one inside the block."""
    token = _CURRENT.set(reservation)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def current_reservation(
    scheduler: EncodeScheduler, tokens: int, *, background: bool = False
) -> Iterator[Reservation]:
    """Yield the reservation of the current request, or a new one outside of any request.

    It is always a new one for background work, for which no client waits.
    """
    current = None if background else _CURRENT.get()
    # What a request started may continue after it, when its reservation has ended.
    if current is not None and not current.released:
        yield current
        return
    with scheduler.reserve(tokens, background=background) as reservation:
        yield reservation

"""The queue of the scheduler: whose sentence block is next, and how many tokens wait.

It computes nothing and knows no encoder. All of it is guarded by one lock.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.errors import OverloadedError, RequestTooLargeError, ServiceError

Float32 = NDArray[np.float32]

_RATE_SMOOTHING = 0.05  # weight of the newest call in the measured rate
_SPECIAL_TOKENS = 2
_BACKGROUND_EVERY = 16  # while requests wait, one turn in so many is the background's


@dataclass(frozen=True, slots=True)
class Encoded:
    """One document, encoded, and where the time went, in seconds.

    Attributes:
        vector: Float32[dimension], unit norm.
        block_vectors: Float32[S, H], unit norm.
        queue_seconds: until its first block was taken.
        encode_seconds: from then on.
    """

    vector: Float32
    block_vectors: Float32
    queue_seconds: float
    encode_seconds: float


@dataclass(slots=True, eq=False)
class Job:
    """A document in the queue, its block vectors Float32[S, H] as they come, and who waits."""

    blocks: Sequence[Sequence[int]]
    vectors: Float32
    waiter: asyncio.Future[Encoded]
    submitted: float
    started: float = 0.0
    taken: int = 0
    done: int = 0


@dataclass(slots=True, eq=False)
class Reservation:
    """The place of one request in the queue; leaving its `with` block gives it back.

    Attributes:
        tokens: tokens reserved and not encoded yet; always 0 in the background, which is bounded
            by who submits it and takes no room from requests.
        background: whether requests go first.
    """

    queue: "BlockQueue"
    tokens: int
    background: bool = False
    waiting: deque[Job] = field(default_factory=deque)  # have a block that nobody has taken
    unanswered: set[Job] = field(default_factory=set)

    def resize(self, tokens: int) -> None:
        """Replace the estimate by the real number of tokens.

        Raises:
            RequestTooLargeError: more than the whole queue holds.
            OverloadedError: the difference has no room.
        """
        self.queue.resize(self, tokens)

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.release(self)


@dataclass(frozen=True, slots=True)
class Block:
    """One sentence block that a worker has taken."""

    reservation: Reservation
    job: Job
    row: int

    @property
    def tokens(self) -> Sequence[int]:
        """Token ids, without special tokens."""
        return self.job.blocks[self.row]


class BlockQueue:
    """Reservations in turns; each turn is one sentence block."""

    def __init__(
        self, max_tokens: int, *, batch_tokens: int, on_change: Callable[[int], object]
    ) -> None:
        """Make an empty queue.

        Args:
            max_tokens: tokens that may be reserved at a time.
            batch_tokens: tokens, padding counted, that one call takes; 0 for one block a call.
            on_change: told the number of queued tokens when it changes.
        """
        self.max_tokens = max_tokens
        self._batch_tokens = batch_tokens
        self._on_change = on_change
        self._changed = threading.Condition()
        self._queued = 0
        self._rate = 0.0  # tokens a second, measured
        self._open: set[Reservation] = set()
        self._turns: deque[Reservation] = deque()  # those with a waiting job
        self._background: deque[Reservation] = deque()  # the same, of the background
        self._until_background = _BACKGROUND_EVERY
        self._closed: Callable[[], ServiceError] | None = None

    @property
    def queued_tokens(self) -> int:
        """Tokens reserved and not encoded yet."""
        return self._queued

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed is not None

    def reserve(self, tokens: int, *, background: bool = False) -> Reservation:
        """Take a place for about `tokens` tokens.

        Raises:
            OverloadedError: there is no room; never in the background.
            ServiceError: the queue is closed.
        """
        tokens = 0 if background else min(tokens, self.max_tokens)
        with self._changed:
            self._admit(tokens)
            reservation = Reservation(self, tokens, background)
            self._open.add(reservation)
            return reservation

    def resize(self, reservation: Reservation, tokens: int) -> None:
        """See `Reservation.resize`."""
        if reservation.background:
            return
        if tokens > self.max_tokens:
            raise RequestTooLargeError(tokens, self.max_tokens)
        with self._changed:
            self._admit(tokens - reservation.tokens)
            reservation.tokens = tokens

    def submit(self, reservation: Reservation, jobs: Sequence[Job]) -> None:
        """Queue the documents of a request.

        Raises:
            ServiceError: the queue is closed.
        """
        with self._changed:
            self._admit(0)
            if jobs and not reservation.waiting:
                self._turns_of(reservation).append(reservation)
            reservation.waiting.extend(jobs)
            reservation.unanswered.update(jobs)
            self._changed.notify(sum(len(job.blocks) for job in jobs))

    def take(self) -> list[Block]:
        """Wait for work and take the blocks of one call; none when the queue is closed."""
        with self._changed:
            while not self._next_turns() and not self._closed:
                self._changed.wait()
            taken: list[Block] = []
            longest = 0
            while (turns := self._next_turns()) and not self._closed:
                job = turns[0].waiting[0]
                longest = max(longest, len(job.blocks[job.taken]) + _SPECIAL_TOKENS)
                if taken and longest * (len(taken) + 1) > self._batch_tokens:
                    break
                taken.append(self._take_one(turns))
        return sorted(taken, key=lambda block: len(block.tokens))

    def keep(self, blocks: Sequence[Block], vectors: Float32) -> list[Block]:
        """Note the block vectors of one call; return the blocks that were their document's last."""
        last: list[Block] = []
        with self._changed:
            for block, vector in zip(blocks, vectors, strict=True):
                job, reservation = block.job, block.reservation
                if job not in reservation.unanswered:
                    continue
                job.vectors[block.row] = vector
                job.done += 1
                spent = min(len(block.tokens), reservation.tokens)
                reservation.tokens -= spent
                self._add_queued(-spent)
                if job.done == len(job.blocks):
                    last.append(block)
        return last

    def answered(self, reservation: Reservation, job: Job) -> bool:
        """Say that a document is done; False when nobody waits for it any more."""
        with self._changed:
            waits = job in reservation.unanswered
            reservation.unanswered.discard(job)
            return waits

    def measure(self, tokens_per_second: float) -> None:
        """Note how fast tokens are encoded, by all workers together."""
        with self._changed:
            weight = _RATE_SMOOTHING if self._rate else 1.0
            self._rate += (tokens_per_second - self._rate) * weight

    def drop(self, reservation: Reservation) -> list[Job]:
        """Take a request out of the queue and return its documents that have no answer."""
        with self._changed:
            if reservation.waiting:
                self._turns_of(reservation).remove(reservation)
            dropped = list(reservation.unanswered)
            reservation.waiting.clear()
            reservation.unanswered.clear()
            return dropped

    def release(self, reservation: Reservation) -> None:
        """Give a place back; what of it is not computed yet never will be."""
        with self._changed:
            self.drop(reservation)
            self._open.discard(reservation)
            self._add_queued(-reservation.tokens)
            reservation.tokens = 0

    def close(self, error: Callable[[], ServiceError]) -> list[Job]:
        """Refuse everything from now on with `error`; return the documents without an answer."""
        with self._changed:
            self._closed = self._closed or error
            self._changed.notify_all()
            return [job for reservation in self._open for job in self.drop(reservation)]

    def _admit(self, tokens: int) -> None:
        if self._closed:
            raise self._closed()
        if tokens > 0 and self._queued + tokens > self.max_tokens:
            seconds = self._queued / self._rate if self._rate else 1.0
            raise OverloadedError(max(1, math.ceil(seconds)), "queue_tokens")
        self._add_queued(tokens)

    def _add_queued(self, tokens: int) -> None:
        self._queued += tokens
        self._on_change(self._queued)

    def _turns_of(self, reservation: Reservation) -> deque[Reservation]:
        return self._background if reservation.background else self._turns

    def _next_turns(self) -> deque[Reservation]:
        """Return those whose turn it is: requests, but for one turn in many if the others wait."""
        if self._turns and not (self._background and self._until_background <= 1):
            return self._turns
        return self._background

    def _take_one(self, turns: deque[Reservation]) -> Block:
        if turns is self._background:
            self._until_background = _BACKGROUND_EVERY
        elif self._background:
            self._until_background -= 1
        reservation = turns.popleft()
        job = reservation.waiting[0]
        block = Block(reservation, job, job.taken)
        if job.taken == 0:
            job.started = time.perf_counter()
        job.taken += 1
        if job.taken == len(job.blocks):
            reservation.waiting.popleft()
        if reservation.waiting:
            turns.append(reservation)
        return block

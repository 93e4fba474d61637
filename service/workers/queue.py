"""The queue of the scheduler: what may wait, whose sentence block is next, and what is too late.

It computes nothing and knows no encoder. All of it is guarded by one lock.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from encoder.arrays import Float32
from service.errors import OverloadedError, RejectionReason, RequestTooLargeError, ServiceError
from service.workers.fair_queue import WEIGHTS, FairQueue, LaneName, lane_of
from service.workers.work import Block, EncodeTask, Reservation

_RATE_MEMORY = 0.95  # how much of what was measured before still counts after one more call
_REFUSED_WEIGHT = 0.05  # of the newest request in the share of those that are refused
_LEAST_BOUND = 0.25  # of `max_seconds`, where nearly all are refused
_SPECIAL_TOKENS = 2
_FOREGROUND: tuple[LaneName, ...] = ("short", "long")


class BlockQueue:
    """Reservations in fair turns; each turn is one sentence block."""

    def __init__(
        self,
        max_tokens: int,
        *,
        batch_tokens: int,
        on_change: Callable[[int], object],
        max_seconds: float = math.inf,
        on_expired: Callable[[list[EncodeTask]], object] = lambda tasks: None,
    ) -> None:
        """Make an empty queue.

        Args:
            max_tokens: tokens that may be reserved at a time.
            batch_tokens: tokens, padding counted, that one call takes; 0 for one block a call.
            on_change: told the number of queued tokens when it changes.
            max_seconds: work that may be ahead of a new request, by the measured rate; less, down
                to a quarter, the more of the requests are refused.
            on_expired: given the documents that were dropped because their deadline passed; must
                not block.
        """
        self.max_tokens = max_tokens
        self.max_seconds = max_seconds
        self._batch_tokens = batch_tokens
        self._on_change = on_change
        self._on_expired = on_expired
        self._changed = threading.Condition()
        self._queued = 0
        self._refused: dict[LaneName, float] = dict.fromkeys(WEIGHTS, 0.0)  # share, of late
        self._ahead: Counter[LaneName] = Counter()  # tokens by lane, without stalled requests
        self._measured = (0.0, 0.0)  # tokens, and the seconds that all workers took for them
        self._rate = 0.0  # tokens a second
        self._open: set[Reservation] = set()
        self._turns: FairQueue[Reservation] = FairQueue()  # those with a waiting task
        self._closed: Callable[[], ServiceError] | None = None

    @property
    def queued_tokens(self) -> int:
        """Tokens reserved and not encoded yet."""
        return self._queued

    @property
    def rate(self) -> float:
        """Tokens a second, as measured; 0 when nothing was."""
        return self._rate

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed is not None

    def reserve(
        self, tokens: int, *, background: bool = False, deadline: float = math.inf
    ) -> Reservation:
        """Take a place for about `tokens` tokens.

        Args:
            tokens: of the request; a single one, however large, is admitted to an empty queue.
            background: let requests go first, and take no room from them.
            deadline: by `time.monotonic`.

        Raises:
            OverloadedError: there is no room, or too much is ahead; never in the background.
            ServiceError: the queue is closed.
        """
        tokens = 0 if background else min(tokens, self.max_tokens)
        lane: LaneName = "background" if background else lane_of(tokens)
        with self._changed:
            self._refuse(tokens)
            if not background:
                self._refuse_late(lane, deadline)
            reservation = Reservation(self, 0, lane, deadline)
            self._add(reservation, tokens)
            self._open.add(reservation)
            return reservation

    def resize(self, reservation: Reservation, tokens: int) -> None:
        """See `Reservation.resize`."""
        if reservation.lane == "background":
            return
        if tokens > self.max_tokens:
            raise RequestTooLargeError(tokens, self.max_tokens)
        with self._changed:
            self._refuse(tokens - reservation.tokens)
            self._add(reservation, tokens - reservation.tokens)
            if not reservation.waiting:
                self._change_lane(reservation, lane_of(tokens))

    def stall(self, reservation: Reservation, stalled: bool) -> None:
        """See `Reservation.stall`."""
        with self._changed:
            if stalled != reservation.stalled:
                reservation.stalled = stalled
                sign = -1 if stalled else 1
                self._ahead[reservation.lane] += sign * reservation.tokens

    def submit(self, reservation: Reservation, tasks: Sequence[EncodeTask]) -> None:
        """Queue the documents of a request.

        Raises:
            ServiceError: the queue is closed.
        """
        with self._changed:
            self._refuse(0)
            begins = bool(tasks) and not reservation.waiting
            reservation.waiting.extend(tasks)
            reservation.unanswered.update(tasks)
            if begins:
                self._turns.add(reservation)
            self._changed.notify(sum(len(task.blocks) for task in tasks))

    def take(self) -> list[Block]:
        """Wait for work and take the blocks of one call; none when the queue is closed."""
        with self._changed:
            while (first := self._next()) is None and not self._closed:
                self._changed.wait()
            taken: list[Block] = []
            longest = 0
            while first is not None and not self._closed:
                longest = max(longest, first.next_tokens() + _SPECIAL_TOKENS)
                if taken and longest * (len(taken) + 1) > self._batch_tokens:
                    break
                taken.append(self._take_one(first))
                first = self._next()
        return sorted(taken, key=lambda block: len(block.tokens))

    def keep(self, blocks: Sequence[Block], vectors: Float32) -> list[Block]:
        """Note the block vectors of one call; return the blocks that were their document's last."""
        last: list[Block] = []
        with self._changed:
            for block, vector in zip(blocks, vectors, strict=True):
                task, reservation = block.task, block.reservation
                if task not in reservation.unanswered:
                    continue
                task.vectors[block.row] = vector
                task.done += 1
                self._add(reservation, -min(len(block.tokens), reservation.tokens))
                if task.done == len(task.pending):
                    last.append(block)
        return last

    def answered(self, reservation: Reservation, task: EncodeTask) -> bool:
        """Say that a document is done; False when nobody waits for it any more."""
        with self._changed:
            waits = task in reservation.unanswered
            reservation.unanswered.discard(task)
            return waits

    def measure(self, tokens: float, seconds: float) -> None:
        """Note that all workers together take so many seconds, above 0, for so many tokens."""
        with self._changed:
            before, spent = self._measured
            self._measured = (before * _RATE_MEMORY + tokens, spent * _RATE_MEMORY + seconds)
            self._rate = self._measured[0] / self._measured[1]

    def drop(self, reservation: Reservation) -> list[EncodeTask]:
        """Take a request out of the queue and return its documents that have no answer."""
        with self._changed:
            self._turns.remove(reservation)
            dropped = list(reservation.unanswered)
            reservation.waiting.clear()
            reservation.unanswered.clear()
            return dropped

    def release(self, reservation: Reservation) -> None:
        """Give a place back; what of it is not computed yet never will be."""
        with self._changed:
            self.drop(reservation)
            self._open.discard(reservation)
            self._add(reservation, -reservation.tokens)
            reservation.released = True

    def close(self, error: Callable[[], ServiceError]) -> list[EncodeTask]:
        """Refuse everything from now on with `error`; return the documents without an answer."""
        with self._changed:
            self._closed = self._closed or error
            self._changed.notify_all()
            return [task for reservation in self._open for task in self.drop(reservation)]

    def _refuse(self, tokens: int) -> None:
        if self._closed:
            raise self._closed()
        if tokens > 0 and self._queued + tokens > self.max_tokens:
            raise self._overloaded(self._queued / self._rate if self._rate else 0.0, "queue_tokens")

    def _refuse_late(self, lane: LaneName, deadline: float) -> None:
        """Refuse what would wait too long: others', or its own time.

        A queue is good for bursts. Where most are refused all the time it only makes those wait
        who are not, so the bound falls with the share of the lane's requests that are refused.
        """
        seconds = self._seconds_ahead(lane)
        bound = self.max_seconds * max(_LEAST_BOUND, 1.0 - self._refused[lane])
        late = seconds > bound
        self._refused[lane] += (late - self._refused[lane]) * _REFUSED_WEIGHT
        if late:
            raise self._overloaded(seconds - bound, "queue_seconds")
        if seconds > deadline - time.monotonic():
            raise self._overloaded(seconds, "deadline")

    def _seconds_ahead(self, lane: LaneName) -> float:
        """Return how long the work that a lane has keeps its share of the encoder busy."""
        if not self._rate:
            return 0.0
        sharing = [one for one in _FOREGROUND if one == lane or self._ahead[one]]
        part = WEIGHTS[lane] / sum(WEIGHTS[one] for one in sharing)
        return self._ahead[lane] / (self._rate * part)

    @staticmethod
    def _overloaded(seconds: float, reason: RejectionReason) -> OverloadedError:
        return OverloadedError(max(1, math.ceil(seconds)), reason)

    def _add(self, reservation: Reservation, tokens: int) -> None:
        reservation.tokens += tokens
        if not reservation.stalled:
            self._ahead[reservation.lane] += tokens
        self._queued += tokens
        self._on_change(self._queued)

    def _change_lane(self, reservation: Reservation, lane: LaneName) -> None:
        if not reservation.stalled:
            self._ahead[reservation.lane] -= reservation.tokens
            self._ahead[lane] += reservation.tokens
        reservation.lane = lane

    def _next(self) -> Reservation | None:
        """Return whose turn it is; who is too late by now is dropped, without a turn."""
        now = time.monotonic()
        while (first := self._turns.next()) is not None and first.deadline <= now:
            self._on_expired(self.drop(first))
        return first

    def _take_one(self, reservation: Reservation) -> Block:
        task = reservation.waiting[0]
        block = Block(reservation, task, task.next_row)
        if task.taken == 0:
            task.started = time.perf_counter()
        last = task.taken + 1 >= len(task.pending)
        self._turns.take(len(block.tokens), again=not last or len(reservation.waiting) > 1)
        task.taken += 1
        if last:
            reservation.waiting.popleft()
        return block

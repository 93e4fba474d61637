"""The queue of the scheduler: what is admitted, and which sentence block is next.

It computes nothing and knows no encoder. One lock guards all of it.

There are three traffic classes: short requests, long requests and background work. Classes with
work share the encoder in proportion to their weights, however many requests each holds: a page does
not wait for a library of books, and a book makes progress however many pages arrive (fair queueing
by virtual time: Demers, Keshav, Shenker, "Analysis and simulation of a fair queueing algorithm",
1989).
Within a class, the next request is the one with the smallest sum of its own tokens and the tokens
that the class had served when it arrived. Small requests go before large ones, and no request is
overtaken for longer than its own tokens take.
"""

import math
import threading
import time
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from operator import attrgetter
from typing import Literal

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import SentenceBlocks
from service.errors import OverloadedError, RejectionReason, RequestTooLargeError, ServiceError

TrafficClass = Literal["short", "long", "background"]

# Requests of more tokens are long: a paper is long, a page or a news article is not.
LONG_TOKENS = 4096
# Shares of the encoder when all classes have work; most tokens arrive in long requests.
WEIGHTS: dict[TrafficClass, int] = {"short": 15, "long": 45, "background": 1}


def traffic_class_of(tokens: int) -> TrafficClass:
    """Return the traffic class of a request with this many tokens."""
    return "long" if tokens > LONG_TOKENS else "short"


@dataclass(slots=True)
class _ClassQueue:
    """The requests of one traffic class, in their order."""

    cost: int
    spent: int = 0  # virtual time of the class: tokens served × cost
    served: int = 0  # tokens
    requests: list["Reservation"] = field(default_factory=list)


class FairQueue:
    """The requests that have work, in fair order. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        most = max(WEIGHTS.values())
        self._classes = {name: _ClassQueue(most // weight) for name, weight in WEIGHTS.items()}

    def add(self, request: "Reservation") -> None:
        """Queue a request. A class that was idle gets no credit for that time, and owes nothing."""
        queue = self._classes[request.traffic_class]
        request.rank = queue.served + request.tokens
        if not queue.requests:
            busy = [other.spent for other in self._classes.values() if other.requests]
            if not busy:  # the queue was empty: no class owes anything for the time before
                for other in self._classes.values():
                    other.spent = 0
            queue.spent = max(queue.spent, min(busy, default=0))
        insort(queue.requests, request, key=attrgetter("rank"))

    def remove(self, request: "Reservation") -> None:
        """Remove a request, if it is queued."""
        with suppress(ValueError):
            self._classes[request.traffic_class].requests.remove(request)

    def next(self) -> "Reservation | None":
        """Return the request whose next piece of work would finish first in virtual time."""
        heads = [queue.requests[0] for queue in self._classes.values() if queue.requests]
        return min(heads, key=self._end, default=None)

    def _end(self, request: "Reservation") -> int:
        queue = self._classes[request.traffic_class]
        return queue.spent + max(1, request.waiting[0].tokens) * queue.cost

    def take(self, request: "Reservation") -> "Block":
        """Take a block of the request that `next` returned, which leaves without any more."""
        queue, block = self._classes[request.traffic_class], request.waiting.popleft()
        queue.served += block.tokens
        queue.spent += max(1, block.tokens) * queue.cost
        if not request.waiting:
            self.remove(request)
        return block


@dataclass(frozen=True, slots=True)
class EncodeResult:
    """One encoded document, and where the time went, in seconds.

    Attributes:
        vector: Float32[dimension], unit norm.
        block_vectors: Float32[S, H], unit norm.
        queue_seconds: from submission until its first block was taken.
        encode_seconds: from then until it was done.
    """

    vector: Float32
    block_vectors: Float32
    queue_seconds: float
    encode_seconds: float


@dataclass(slots=True, eq=False)
class EncodeTask:
    """A document to encode.

    Attributes:
        document: its sentence blocks.
        width: H, of a block vector.
        whole: its blocks are encoded in one call, as a recurrent encoder does.
        ids: token ids of the S blocks to encode, without special tokens.
        vectors: Float32[S, H], filled in block by block.
        rows: of `vectors` that are to be encoded: all but those that a cache fills in.
        waiter: future of the result.
        submitted: when it was made, by `time.perf_counter`.
        started: when its first block was taken, by `time.perf_counter`.
        done: number of its rows that were encoded.
    """

    document: SentenceBlocks
    width: InitVar[int]
    whole: bool = False
    ids: Sequence[Sequence[int]] = field(init=False)
    vectors: Float32 = field(init=False)
    rows: list[int] = field(init=False)
    waiter: Future[EncodeResult] = field(default_factory=Future)
    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    done: int = 0

    def __post_init__(self, width: int) -> None:
        self.ids = self.document.to_encode
        self.vectors = np.empty((len(self.ids), width), dtype=np.float32)
        self.rows = list(range(len(self.ids)))

    def blocks(self, reservation: "Reservation") -> "list[Block]":
        """Return what workers take: each row, all of them, or one block without rows."""
        pieces = [self.rows] if self.whole or not self.rows else [[row] for row in self.rows]
        return [
            Block(reservation, self, rows, sum(len(self.ids[row]) for row in rows))
            for rows in pieces
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One sentence block for a worker, or all of a document, or none of it.

    Attributes:
        reservation: of its request.
        task: its document.
        rows: of the document that it encodes.
        tokens: of these, without special tokens.
    """

    reservation: "Reservation"
    task: EncodeTask
    rows: list[int]
    tokens: int


@dataclass(slots=True, eq=False)
class Reservation:
    """The tokens that one request has reserved in the queue; leaving its `with` block ends it.

    Attributes:
        queue: where they are reserved.
        tokens: reserved and not encoded yet; always 0 for background work, which its caller bounds
            and which takes no room from requests.
        traffic_class: the class whose share of the encoder it uses.
        client: whose request it is; None for the service itself.
        stalled: its body does not arrive: other requests do not count it as work ahead of them. It
            keeps its tokens, which stand for memory.
        released: it has ended.
        rank: its place in the order of its class.
        waiting: blocks that have not been taken.
        unanswered: documents without a result.
    """

    queue: "BlockQueue"
    tokens: int
    traffic_class: TrafficClass = "short"
    client: str | None = None
    stalled: bool = False
    released: bool = False
    rank: int = 0
    waiting: deque[Block] = field(default_factory=deque)
    unanswered: set[EncodeTask] = field(default_factory=set)

    def resize(self, tokens: int) -> None:
        """Replace the estimated number of tokens by the actual one."""
        self.queue.resize(self, tokens)

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.release(self)


_RATE_DECAY = 0.95  # weight of earlier measurements after one more call
_REJECTION_WEIGHT = 0.05  # weight of the newest request in the share of rejected ones
_MIN_BOUND = 0.1  # of `max_seconds`, when nearly all requests are rejected
_SPECIAL_TOKENS = 2
_OF_ONE_CLIENT = 0.75  # of the queue: room for a book, which takes half, and for pages
_FOREGROUND: tuple[TrafficClass, ...] = ("short", "long")


class BlockQueue:
    """Reservations in fair order; each is served one sentence block at a time.

    Attributes:
        queued_tokens: reserved and not encoded yet.
        rate: measured tokens a second; 0 before the first measurement.
    """

    def __init__(
        self, max_tokens: int, *, batch_tokens: int, max_seconds: float = math.inf
    ) -> None:
        """Create an empty queue.

        Args:
            max_tokens: tokens that may be reserved at a time.
            batch_tokens: tokens of one call, padding included; 0 for one block a call.
            max_seconds: work that may be queued ahead of a new request, at the measured rate; down
                to a tenth of it, the more requests are rejected.
        """
        self.max_tokens = max_tokens
        self.max_seconds = max_seconds
        self._batch_tokens = batch_tokens
        self._changed = threading.Condition()
        self.queued_tokens = 0
        self._rejected: dict[TrafficClass, float] = dict.fromkeys(WEIGHTS, 0.0)  # recent share
        self._measured = (0.0, 0.0)  # tokens, and the seconds that all workers took for them
        self.rate = 0.0
        self._open: set[Reservation] = set()
        self._requests = FairQueue()  # those with a waiting block
        self._closed: Callable[[], ServiceError] | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed is not None

    def reserve(
        self,
        tokens: int,
        *,
        background: bool = False,
        deadline: float = math.inf,
        client: str | None = None,
    ) -> Reservation:
        """Reserve about `tokens` tokens of the queue, or fail at once. To be used in `with`.

        Args:
            tokens: of the request; a single request, however large, is admitted to an empty queue.
            background: never rejected; it takes no room from requests and yields to them.
            deadline: by `time.monotonic`; a request that would wait for longer is rejected. One
                whose deadline passes later is cancelled by its caller.
            client: whose request it is. Its requests may reserve three quarters of the queue, if
                there are several.
        """
        tokens = 0 if background else min(tokens, self.max_tokens)
        traffic_class: TrafficClass = "background" if background else traffic_class_of(tokens)
        with self._changed:
            reservation = Reservation(self, 0, traffic_class, client)
            self._check_room(tokens, reservation)
            if not background:
                self._check_delay(reservation, deadline)
            self._add(reservation, tokens)
            self._open.add(reservation)
            return reservation

    def resize(self, reservation: Reservation, tokens: int) -> None:
        """See `Reservation.resize`."""
        if reservation.traffic_class == "background":
            return
        if tokens > self.max_tokens:
            raise RequestTooLargeError(tokens=tokens, limit=self.max_tokens)
        with self._changed:
            self._check_room(tokens - reservation.tokens, reservation)
            self._add(reservation, tokens - reservation.tokens)
            if not reservation.waiting:
                reservation.traffic_class = traffic_class_of(tokens)

    def submit(self, reservation: Reservation, tasks: Sequence[EncodeTask]) -> None:
        """Queue the documents of a request."""
        blocks = [block for task in tasks for block in task.blocks(reservation)]
        with self._changed:
            self._check_room(0, reservation)
            is_new = bool(blocks) and not reservation.waiting
            reservation.waiting.extend(blocks)
            reservation.unanswered.update(tasks)
            if is_new:
                self._requests.add(reservation)
            self._changed.notify(len(blocks))

    def take(self) -> list[Block]:
        """Wait for work and take the blocks of one call; return none when the queue is closed."""
        with self._changed:
            while (first := self._requests.next()) is None and not self._closed:
                self._changed.wait()
            taken: list[Block] = []
            longest = 0
            while first is not None and not self._closed:
                longest = max(longest, first.waiting[0].tokens + _SPECIAL_TOKENS)
                if taken and longest * (len(taken) + 1) > self._batch_tokens:
                    break
                taken.append(self._requests.take(first))
                taken[-1].task.started = taken[-1].task.started or time.perf_counter()
                first = self._requests.next()
        return sorted(taken, key=lambda block: block.tokens)

    def store_vectors(self, blocks: Sequence[Block], vectors: Float32) -> list[Block]:
        """Store the block vectors of one call.

        Returns:
            The blocks that completed their document.
        """
        last: list[Block] = []
        with self._changed:
            start = 0
            for block in blocks:
                task, reservation = block.task, block.reservation
                start, first = start + len(block.rows), start
                if task not in reservation.unanswered:
                    continue
                task.vectors[block.rows] = vectors[first:start]
                task.done += len(block.rows)
                self._add(reservation, -min(block.tokens, reservation.tokens))
                if task.done == len(task.rows):
                    last.append(block)
        return last

    def complete(self, reservation: Reservation, task: EncodeTask) -> bool:
        """Mark a document as done; return whether its caller still waits for it."""
        with self._changed:
            waits = task in reservation.unanswered
            reservation.unanswered.discard(task)
            return waits

    def measure(self, tokens: float, seconds: float) -> None:
        """Record that all workers together took `seconds`, above 0, for `tokens`."""
        with self._changed:
            before, spent = self._measured
            self._measured = (before * _RATE_DECAY + tokens, spent * _RATE_DECAY + seconds)
            self.rate = self._measured[0] / self._measured[1]

    def drop(self, reservation: Reservation) -> list[EncodeTask]:
        """Take a request out of the queue and return its unanswered documents."""
        with self._changed:
            self._requests.remove(reservation)
            dropped = list(reservation.unanswered)
            reservation.waiting.clear()
            reservation.unanswered.clear()
            return dropped

    def release(self, reservation: Reservation) -> None:
        """End a reservation; what it has queued is never computed."""
        with self._changed:
            self.drop(reservation)
            self._open.discard(reservation)
            self._add(reservation, -reservation.tokens)
            reservation.released = True

    def close(self, error: Callable[[], ServiceError]) -> list[EncodeTask]:
        """Reject everything from now on with `error`; return the unanswered documents."""
        with self._changed:
            self._closed = self._closed or error
            self._changed.notify_all()
            return [task for reservation in self._open for task in self.drop(reservation)]

    def _check_room(self, tokens: int, reservation: Reservation) -> None:
        if self._closed:
            raise self._closed()
        if tokens <= 0:
            return
        held = 0
        if reservation.client is not None:
            others = (each for each in self._open if each.client == reservation.client)
            held = sum(each.tokens for each in others if each is not reservation)
        over = held and held + reservation.tokens + tokens > self.max_tokens * _OF_ONE_CLIENT
        if over or self.queued_tokens + tokens > self.max_tokens:
            raise self._overloaded(
                self.queued_tokens / self.rate if self.rate else 0.0, "queue_tokens"
            )

    def _check_delay(self, reservation: Reservation, deadline: float) -> None:
        """Reject a request that would wait longer than the bound, or past its own deadline.

        A queue absorbs bursts. When most requests are rejected all the time, it only delays those
        that are admitted: so the bound falls with the share of rejected requests of the class.
        Where one client has most of the work ahead, a client without any is not refused for it.
        """
        traffic_class = reservation.traffic_class
        seconds = self._seconds_ahead(traffic_class)
        bound = self.max_seconds * max(_MIN_BOUND, 1.0 - self._rejected[traffic_class])
        late = seconds > bound and not self._is_of_one(traffic_class, reservation.client)
        self._rejected[traffic_class] += (late - self._rejected[traffic_class]) * _REJECTION_WEIGHT
        if late:
            raise self._overloaded(seconds - bound, "queue_seconds")
        if seconds > deadline - time.monotonic():
            raise self._overloaded(seconds, "deadline")

    def _is_of_one(self, traffic_class: TrafficClass, client: str | None) -> bool:
        """Return whether another client has most of the work of a class, and this one has none."""
        held: Counter[str | None] = Counter()
        for each in self._open:
            if each.traffic_class == traffic_class and each.client and not each.stalled:
                held[each.client] += each.tokens
        return held[client] == 0 and 2 * max(held.values(), default=0) > self._ahead(traffic_class)

    def _ahead(self, traffic_class: TrafficClass) -> int:
        """Return the tokens that the requests of a class hold, without those that are stalled."""
        ahead = (each for each in self._open if each.traffic_class == traffic_class)
        return sum(each.tokens for each in ahead if not each.stalled)

    def _seconds_ahead(self, traffic_class: TrafficClass) -> float:
        """Return how long the queued work of a class occupies its share of the encoder."""
        if not self.rate:
            return 0.0
        sharing = [name for name in _FOREGROUND if name == traffic_class or self._ahead(name)]
        share = WEIGHTS[traffic_class] / sum(WEIGHTS[name] for name in sharing)
        return self._ahead(traffic_class) / (self.rate * share)

    @staticmethod
    def _overloaded(seconds: float, reason: RejectionReason) -> OverloadedError:
        return OverloadedError(max(1, math.ceil(seconds)), reason)

    def _add(self, reservation: Reservation, tokens: int) -> None:
        reservation.tokens += tokens
        self.queued_tokens += tokens

"""What the queue of the scheduler holds: reservations, documents and sentence blocks."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from encoder.arrays import Float32
from encoder.document_reading import DocumentReading
from service.workers.fair_queue import TrafficClass

Adapt = Callable[[Float32, Sequence[Sequence[int]]], Float32]  # vector, sentence blocks -> vector

DOCUMENT_ONLY = -1  # the row of a document whose block vectors are all known


class ReservationOwner(Protocol):
    """The queue that a reservation belongs to."""

    def resize(self, reservation: "Reservation", tokens: int) -> None:
        """See `Reservation.resize`."""

    def stall(self, reservation: "Reservation", stalled: bool) -> None:
        """See `Reservation.stall`."""

    def release(self, reservation: "Reservation") -> None:
        """End a reservation."""


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
        blocks: token ids of its sentence blocks to encode, without special tokens.
        vectors: Float32[S, H], filled in block by block.
        waiter: future of the result.
        submitted: when it was queued, by `time.perf_counter`.
        known: rows of `vectors` that were filled from the cache.
        reading: of a recurrent encoder: the document, of which every step reads the next block.
        passes: how often each block is read; 1 but for a recurrent encoder.
        counted: all its sentence blocks, whose words are counted; empty where all are encoded.
        adapt: fits the vector to the corpus of its collection; None where there is no adapter.
        pending: the other rows, as often as they are read.
        started: when its first block was taken, by `time.perf_counter`.
        taken: number of pending rows that were taken.
        done: number of pending rows that were encoded.
    """

    blocks: Sequence[Sequence[int]]
    vectors: Float32
    waiter: asyncio.Future[EncodeResult]
    submitted: float
    known: Collection[int] = ()
    reading: DocumentReading | None = None
    passes: int = 1
    counted: Sequence[Sequence[int]] = ()
    adapt: Adapt | None = None
    pending: list[int] = field(init=False)
    started: float = 0.0
    taken: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        rows = [row for row in range(len(self.blocks)) if row not in self.known]
        self.pending = rows * self.passes

    @property
    def pending_tokens(self) -> int:
        """Tokens to encode."""
        return sum(len(self.blocks[row]) for row in self.pending)

    @property
    def next_row(self) -> int:
        """The row to take next."""
        return self.pending[self.taken] if self.pending else DOCUMENT_ONLY


@dataclass(slots=True, eq=False)
class Reservation:
    """The tokens that one request has reserved in the queue; leaving its `with` block ends it.

    Attributes:
        queue: where they are reserved.
        tokens: reserved and not encoded yet; always 0 for background work, which its caller bounds
            and which takes no room from requests.
        traffic_class: the class whose share of the encoder it uses.
        deadline: by `time.monotonic`; nothing is computed for it after that.
        stalled: its body does not arrive: other requests do not count it as work ahead of them.
        released: it has ended.
        entry: number of its entry in the fair queue; 0 while it has none.
        rank: its place in the order of its class.
        waiting: documents with a block that has not been taken.
        unanswered: documents without a result.
    """

    queue: ReservationOwner
    tokens: int
    traffic_class: TrafficClass = "short"
    deadline: float = math.inf
    stalled: bool = False
    released: bool = False
    entry: int = 0
    rank: int = 0
    waiting: deque[EncodeTask] = field(default_factory=deque)
    unanswered: set[EncodeTask] = field(default_factory=set)

    def resize(self, tokens: int) -> None:
        """Replace the estimated number of tokens by the actual one.

        Raises:
            RequestTooLargeError: there are more tokens than the whole queue holds.
            OverloadedError: there is no room for the difference.
        """
        self.queue.resize(self, tokens)

    def stall(self, stalled: bool) -> None:
        """Set whether the request is stalled because its body does not arrive.

        It keeps its tokens: they stand for memory.
        """
        self.queue.stall(self, stalled)

    def next_tokens(self) -> int:
        """Return the tokens of the block to take next."""
        return len(Block(self, self.waiting[0], self.waiting[0].next_row).tokens)

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.release(self)


@dataclass(frozen=True, slots=True)
class Block:
    """One sentence block that a worker has taken, or a document whose blocks are all known."""

    reservation: Reservation
    task: EncodeTask
    row: int

    @property
    def tokens(self) -> Sequence[int]:
        """Token ids, without special tokens."""
        return () if self.row == DOCUMENT_ONLY else self.task.blocks[self.row]

    @property
    def cost(self) -> int:
        """Tokens that it counts for: those of all readings of a block are its tokens."""
        return len(self.tokens) // self.task.passes

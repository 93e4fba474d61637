"""What is in the queue of the scheduler: requests, their documents, and sentence blocks."""

import asyncio
import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from encoder.arrays import Float32
from service.workers.fair_queue import LaneName

DOCUMENT_ONLY = -1  # the row of a document whose block vectors are all known


class ReservationOwner(Protocol):
    """The queue, as a place in it needs it."""

    def resize(self, reservation: "Reservation", tokens: int) -> None:
        """See `Reservation.resize`."""

    def stall(self, reservation: "Reservation", stalled: bool) -> None:
        """See `Reservation.stall`."""

    def release(self, reservation: "Reservation") -> None:
        """Give a place back."""


@dataclass(frozen=True, slots=True)
class EncodeResult:
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
class EncodeTask:
    """A document in the queue, and who waits for it.

    Attributes:
        blocks: its sentence blocks.
        vectors: Float32[S, H], their vectors as they come.
        waiter: who is answered.
        submitted: when it came.
        known: rows of `vectors` that are there already.
        pending: the other rows.
    """

    blocks: Sequence[Sequence[int]]
    vectors: Float32
    waiter: asyncio.Future[EncodeResult]
    submitted: float
    known: Collection[int] = ()
    pending: list[int] = field(init=False)
    started: float = 0.0
    taken: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.pending = [row for row in range(len(self.blocks)) if row not in self.known]

    @property
    def pending_tokens(self) -> int:
        """Tokens that have to be encoded."""
        return sum(len(self.blocks[row]) for row in self.pending)

    @property
    def next_row(self) -> int:
        """The row that is taken next."""
        return self.pending[self.taken] if self.pending else DOCUMENT_ONLY


@dataclass(slots=True, eq=False)
class Reservation:
    """The place of one request in the queue; leaving its `with` block gives it back.

    Attributes:
        tokens: tokens reserved and not encoded yet; always 0 in the background, which is bounded
            by who submits it and takes no room from requests.
        lane: with whom it shares the encoder.
        deadline: by `time.monotonic`; nothing of it is computed from then on.
        stalled: its body does not come, so that nobody should wait for it.
        released: it was given back.
    """

    queue: ReservationOwner
    tokens: int
    lane: LaneName = "short"
    deadline: float = math.inf
    stalled: bool = False
    released: bool = False
    turn: int = 0
    waiting: deque[EncodeTask] = field(default_factory=deque)  # have a block that nobody has taken
    unanswered: set[EncodeTask] = field(default_factory=set)

    def resize(self, tokens: int) -> None:
        """Replace the estimate by the real number of tokens.

        Raises:
            RequestTooLargeError: more than the whole queue holds.
            OverloadedError: the difference has no room.
        """
        self.queue.resize(self, tokens)

    def stall(self, stalled: bool) -> None:
        """Say whether others need to wait for it although its body is still on its way.

        It keeps its tokens: they stand for memory.
        """
        self.queue.stall(self, stalled)

    def next_tokens(self) -> int:
        """Return the tokens of the block that is taken next."""
        return len(Block(self, self.waiting[0], self.waiting[0].next_row).tokens)

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.release(self)


@dataclass(frozen=True, slots=True)
class Block:
    """One sentence block that a worker has taken, or a document that needs none."""

    reservation: Reservation
    task: EncodeTask
    row: int

    @property
    def tokens(self) -> Sequence[int]:
        """Token ids, without special tokens."""
        return () if self.row == DOCUMENT_ONLY else self.task.blocks[self.row]

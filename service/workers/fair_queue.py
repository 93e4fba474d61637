"""Weighted fair queueing, in tokens: between traffic classes and between the requests of a class.

There are three traffic classes: short requests, long requests and background work. Classes with
work share the encoder in proportion to their weights, however many requests each holds: a page does
not wait for a library of books, and a book makes progress however many pages arrive (fair queueing
by virtual time: Demers, Keshav, Shenker, "Analysis and simulation of a fair queueing algorithm",
1989).
Within a class, the next request is the one with the smallest sum of its own tokens and the tokens
that the class had served when it arrived. Small requests go before large ones, and no request is
overtaken for longer than its own tokens take.
"""

import heapq
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

TrafficClass = Literal["short", "long", "background"]

# Requests of more tokens are long: a paper is long, a page or a news article is not.
LONG_TOKENS = 4096
# Shares of the encoder when all classes have work; most tokens arrive in long requests.
WEIGHTS: dict[TrafficClass, int] = {"short": 15, "long": 45, "background": 1}
_COST: dict[TrafficClass, int] = {
    name: max(WEIGHTS.values()) // weight for name, weight in WEIGHTS.items()
}


def traffic_class_of(tokens: int) -> TrafficClass:
    """Return the traffic class of a request with this many tokens."""
    return "long" if tokens > LONG_TOKENS else "short"


class Schedulable(Protocol):
    """A request with work.

    Attributes:
        traffic_class: the class whose share it uses.
        tokens: of all its work.
        entry: number of its entry in the queue; 0 while it is not queued.
        rank: its place in the order of its class, set when it is queued.
    """

    traffic_class: TrafficClass
    tokens: int
    entry: int
    rank: int

    def next_tokens(self) -> int:
        """Return the tokens of its next piece of work."""


T = TypeVar("T", bound=Schedulable)


@dataclass(slots=True)
class _ClassQueue(Generic[T]):
    """The requests of one traffic class."""

    cost: int
    spent: int = 0  # virtual time of the class: tokens served × cost
    served: int = 0  # tokens
    heap: list[tuple[int, int, T]] = field(default_factory=list)

    def head(self) -> tuple[int, int, T] | None:
        """Return the entry of the next request, after discarding entries of removed requests."""
        while self.heap and self.heap[0][1] != self.heap[0][2].entry:
            heapq.heappop(self.heap)
        return self.heap[0] if self.heap else None


class FairQueue(Generic[T]):
    """The requests that have work, in fair order. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._classes: dict[TrafficClass, _ClassQueue[T]] = {
            name: _ClassQueue(cost) for name, cost in _COST.items()
        }
        self._entries = 0

    def add(self, request: T) -> None:
        """Queue a request. A class that was idle gets no credit for that time, and owes nothing."""
        own = self._classes[request.traffic_class]
        request.rank = own.served + request.tokens
        self.resume(request)

    def resume(self, request: T) -> None:
        """Queue a request again, at the place it had: its work was waiting for other work of it."""
        own = self._classes[request.traffic_class]
        if own.head() is None:
            busy = [other.spent for other in self._classes.values() if other.head() is not None]
            if not busy:  # the queue was empty: no class owes anything for the time before
                for other in self._classes.values():
                    other.spent = 0
            own.spent = max(own.spent, min(busy, default=0))
        self._entries += 1
        request.entry = self._entries
        heapq.heappush(own.heap, (request.rank, self._entries, request))

    def remove(self, request: T) -> None:
        """Remove a request; its heap entry is discarded when it reaches the top."""
        request.entry = 0

    def next(self) -> T | None:
        """Return the request to serve next, without serving it."""
        first = self._next_class()
        head = None if first is None else first.head()
        return None if head is None else head[2]

    def serve(self, tokens: int, *, has_more: bool) -> None:
        """Charge the request that `next` returns for one piece of work.

        Args:
            tokens: of the piece of work.
            has_more: whether the request has more work; otherwise it leaves the queue.

        Raises:
            ValueError: the queue is empty.
        """
        first = self._next_class()
        if first is None:
            raise ValueError("the queue is empty")
        first.served += tokens
        first.spent += max(1, tokens) * first.cost
        if not has_more:
            heapq.heappop(first.heap)[2].entry = 0

    def _next_class(self) -> _ClassQueue[T] | None:
        """Return the class whose next piece of work would finish first in virtual time."""
        best: tuple[int, _ClassQueue[T]] | None = None
        for one in self._classes.values():
            head = one.head()
            if head is not None:
                end = one.spent + max(1, head[2].next_tokens()) * one.cost
                if best is None or end < best[0]:
                    best = (end, one)
        return None if best is None else best[1]

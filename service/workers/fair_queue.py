"""Whose turn it is at the encoder: by tokens, between kinds of work and between requests.

There are three lanes: short requests, long ones, and work that nobody waits for. Lanes that have
work share the encoder by their weights, however many requests are in each, so that a page does not
wait for a library of books, and a book gets its part however many pages come (fair queuing by
virtual time: Demers, Keshav, Shenker, "Analysis and simulation of a fair queueing algorithm",
1989).
Within a lane the request is next whose tokens, added to those that the lane had served when it
came, are fewest: small before large, and nobody is overtaken for longer than its own tokens take.
"""

import heapq
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

LaneName = Literal["short", "long", "background"]

# Requests of more tokens are long: a paper is, a page or a news article is not.
LONG_TOKENS = 4096
# Parts of the encoder when all lanes have work; most tokens that come are of long requests.
WEIGHTS: dict[LaneName, int] = {"short": 15, "long": 30, "background": 1}
_COST: dict[LaneName, int] = {
    name: max(WEIGHTS.values()) // weight for name, weight in WEIGHTS.items()
}


def lane_of(tokens: int) -> LaneName:
    """Return the lane of a request of so many tokens."""
    return "long" if tokens > LONG_TOKENS else "short"


class Turn(Protocol):
    """What takes turns: a request with work."""

    lane: LaneName
    tokens: int
    turn: int

    def next_tokens(self) -> int:
        """Return the tokens of its next piece of work."""


T = TypeVar("T", bound=Turn)


@dataclass(slots=True)
class _TrafficClass(Generic[T]):
    """One lane: its virtual time, and its requests by theirs."""

    cost: int
    spent: int = 0  # virtual time of the lane: tokens served × cost
    served: int = 0  # tokens
    heap: list[tuple[int, int, T]] = field(default_factory=list)

    def head(self) -> tuple[int, int, T] | None:
        """Return the request that is next, without those that left."""
        while self.heap and self.heap[0][1] != self.heap[0][2].turn:
            heapq.heappop(self.heap)
        return self.heap[0] if self.heap else None


class FairQueue(Generic[T]):
    """The requests that have work, in fair order. Not guarded: who owns it has the lock."""

    def __init__(self) -> None:
        self._lanes: dict[LaneName, _TrafficClass[T]] = {
            name: _TrafficClass(cost) for name, cost in _COST.items()
        }
        self._entries = 0

    def add(self, request: T) -> None:
        """Let a request take turns from now on; it owes nothing for the time before."""
        lane = self._lanes[request.lane]
        if lane.head() is None:
            busy = [other.spent for other in self._lanes.values() if other.head() is not None]
            if not busy:  # all lanes start again: none owes anything for before an idle time
                for other in self._lanes.values():
                    other.spent = 0
            lane.spent = max(lane.spent, min(busy, default=0))
        self._entries += 1
        request.turn = self._entries
        heapq.heappush(lane.heap, (lane.served + request.tokens, self._entries, request))

    def remove(self, request: T) -> None:
        """Let a request take no turns any more."""
        request.turn = 0  # its entry is left out when it comes to the top

    def next(self) -> T | None:
        """Return whose turn it is, without taking it."""
        lane = self._next_lane()
        head = None if lane is None else lane.head()
        return None if head is None else head[2]

    def take(self, tokens: int, *, again: bool) -> None:
        """Take the turn of `next`.

        Args:
            tokens: that it was worth.
            again: whether the request has more work.
        """
        lane = self._next_lane()
        if lane is None:
            raise ValueError("nobody has work")
        lane.served += tokens
        lane.spent += max(1, tokens) * lane.cost
        if not again:
            heapq.heappop(lane.heap)[2].turn = 0

    def _next_lane(self) -> _TrafficClass[T] | None:
        """Return the lane whose next piece of work would end first in virtual time."""
        best: tuple[int, _TrafficClass[T]] | None = None
        for lane in self._lanes.values():
            head = lane.head()
            if head is not None:
                end = lane.spent + max(1, head[2].next_tokens()) * lane.cost
                if best is None or end < best[0]:
                    best = (end, lane)
        return None if best is None else best[1]

"""Whose turn it is at the encoder: by tokens, between kinds of work and between requests.

There are three lanes: short requests, long ones, and work that nobody waits for. Lanes that have
work share the encoder by their weights, however many requests are in each; the requests of a lane
share what it has in equal parts. So a page does not wait for a library of books, and a book gets
its half however many pages come. Fair queuing by virtual time: Demers, Keshav, Shenker, "Analysis
and simulation of a fair queueing algorithm" (1989), and for the requests of a lane Goyal, Vin,
Cheng, "Start-time fair queuing" (1996).
"""

import heapq
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

LaneName = Literal["short", "long", "background"]

# Requests of more tokens are long: a paper is, a page or a news article is not.
LONG_TOKENS = 4096
# What a token of each lane costs: the background has one turn for fifteen of each other lane.
_COST: dict[LaneName, int] = {"short": 1, "long": 1, "background": 15}


def lane_of(tokens: int) -> LaneName:
    """Return the lane of a request of so many tokens."""
    return "long" if tokens > LONG_TOKENS else "short"


class Turn(Protocol):
    """What takes turns: a request with work."""

    lane: LaneName
    turn: int

    def next_tokens(self) -> int:
        """Return the tokens of its next piece of work."""


T = TypeVar("T", bound=Turn)


@dataclass(slots=True)
class _Lane(Generic[T]):
    """One lane: its virtual time, and its requests by theirs."""

    cost: int
    spent: int = 0  # virtual time of the lane: tokens served × cost
    clock: int = 0  # virtual time within the lane, of the request last served
    heap: list[tuple[int, int, T]] = field(default_factory=list)

    def head(self) -> tuple[int, int, T] | None:
        """Return the request that is next, without those that left."""
        while self.heap and self.heap[0][1] != self.heap[0][2].turn:
            heapq.heappop(self.heap)
        return self.heap[0] if self.heap else None


class FairTurns(Generic[T]):
    """The requests that have work, in fair order. Not guarded: who owns it has the lock."""

    def __init__(self) -> None:
        self._lanes: dict[LaneName, _Lane[T]] = {name: _Lane(cost) for name, cost in _COST.items()}
        self._entries = 0

    def add(self, request: T) -> None:
        """Let a request take turns from now on; it owes nothing for the time before."""
        lane = self._lanes[request.lane]
        if lane.head() is None:
            busy = [other.spent for other in self._lanes.values() if other.head() is not None]
            lane.spent = max(lane.spent, min(busy, default=0))
        self._push(lane, request, lane.clock)

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
        start, _, request = heapq.heappop(lane.heap)
        lane.clock = start
        lane.spent += max(1, tokens) * lane.cost
        if again:
            self._push(lane, request, start + max(1, tokens))
        else:
            request.turn = 0

    def _push(self, lane: _Lane[T], request: T, start: int) -> None:
        self._entries += 1
        request.turn = self._entries
        heapq.heappush(lane.heap, (start, self._entries, request))

    def _next_lane(self) -> _Lane[T] | None:
        """Return the lane whose next piece of work would end first in virtual time."""
        best: tuple[int, _Lane[T]] | None = None
        for lane in self._lanes.values():
            head = lane.head()
            if head is not None:
                end = lane.spent + max(1, head[2].next_tokens()) * lane.cost
                if best is None or end < best[0]:
                    best = (end, lane)
        return None if best is None else best[1]

"""Fair queueing by tokens: between traffic classes, between requests, without starvation."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.workers.queue import LONG_TOKENS, FairQueue, TrafficClass, traffic_class_of


class Request:
    """A request with blocks of these tokens."""

    def __init__(self, blocks: list[int], traffic_class: TrafficClass = "short") -> None:
        self.traffic_class = traffic_class
        self.tokens = sum(blocks)
        self.waiting = deque(SimpleNamespace(tokens=tokens) for tokens in blocks)
        self.rank = self.served = self.came_at = 0
        self.ended_at = 0  # tokens that the encoder had done when it ended


class Encoder:
    """Serves the queue, and counts tokens."""

    def __init__(self) -> None:
        self.queue: Any = FairQueue()
        self.done = 0

    def add(self, *requests: Request) -> None:
        for request in requests:
            request.came_at = self.done
            self.queue.add(request)

    def step(self) -> Request | None:
        request: Request | None = self.queue.next()
        if request is None:
            return None
        tokens = self.queue.take(request).tokens
        self.done += tokens
        request.served += tokens
        if not request.waiting:
            request.ended_at = self.done
        return request

    def serve(self, request: Request) -> Request:
        """Add a request and go on until it has ended."""
        self.add(request)
        while not request.ended_at:
            self.step()
        return request

    def run(self, tokens: int) -> None:
        end = self.done + tokens
        while self.done < end and self.step() is not None:
            pass


def book() -> Request:
    return Request([126] * 240, "long")


def page() -> Request:
    return Request([100, 100, 100])


def test_requests_of_more_than_a_few_pages_are_long() -> None:
    assert traffic_class_of(LONG_TOKENS) == "short"
    assert traffic_class_of(LONG_TOKENS + 1) == "long"


def test_a_book_gets_three_quarters_however_many_pages_come() -> None:
    encoder, first = Encoder(), book()
    encoder.add(first)
    pages = []
    while not first.ended_at:
        pages.append(page())
        encoder.add(pages[-1])
        encoder.run(100)  # three times what the encoder can do keeps coming
    assert first.ended_at <= 1.38 * 126 * 240


def test_a_page_is_quick_however_many_books_there_are() -> None:
    encoder = Encoder()
    encoder.add(*(book() for _ in range(50)))
    encoder.run(10_000)
    for _ in range(20):
        item = encoder.serve(page())
        assert item.ended_at - item.came_at <= 4 * 300 + 4 * 126


def test_large_requests_are_overtaken_only_for_a_while() -> None:
    encoder, large = Encoder(), Request([100] * 40)
    encoder.add(large)
    while not large.ended_at:
        encoder.add(page())  # as much as the encoder can do, so that the queue never ends
        encoder.run(300)
    assert large.ended_at <= 2 * 4_000 + 600


def test_an_idle_class_gets_no_credit() -> None:
    encoder, first, other = Encoder(), book(), Request([100] * 400)
    encoder.add(first)
    encoder.run(20_000)
    encoder.add(other)
    encoder.run(6_000)
    assert other.served == pytest.approx(1_500, abs=300)


def test_a_class_that_leaves_and_comes_back_keeps_what_it_spent() -> None:
    encoder, rival = Encoder(), book()
    encoder.add(rival)
    for _ in range(100):  # a client that sends its next page when it has its answer
        encoder.serve(Request([100]))
    assert rival.served == pytest.approx(encoder.done * 3 / 4, rel=0.03)


def test_after_an_idle_time_no_class_owes_for_earlier_work() -> None:
    encoder = Encoder()
    encoder.add(Request([100] * 100, "long"))
    encoder.run(10_000)  # alone, and to its end
    encoder.add(Request([100] * 400))
    item = encoder.serve(Request([100], "long"))
    assert item.ended_at - item.came_at <= 300


def test_the_background_gets_a_sixteenth_and_all_idle_time() -> None:
    encoder, later = Encoder(), Request([10] * 10_000, "background")
    item = Request([10] * 1_600)
    encoder.add(later, item)
    encoder.run(16_000)
    assert later.served == pytest.approx(1_000, abs=20)
    encoder.run(21_000)
    assert item.ended_at
    assert later.served > 20_000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["short", "long", "background"]),
            st.lists(st.integers(1, 126), min_size=1, max_size=30),
            st.integers(0, 500),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_busy_classes_get_their_share_and_all_is_done(
    arrivals: list[tuple[TrafficClass, list[int], int]],
) -> None:
    encoder = Encoder()
    requests = []
    for traffic_class, blocks, pause in arrivals:
        requests.append(Request(blocks, traffic_class))
        encoder.add(requests[-1])
        encoder.run(pause)
    while encoder.step() is not None:
        pass
    assert encoder.done == sum(sum(blocks) for _, blocks, _ in arrivals)
    assert all(request.ended_at for request in requests)
    for request, (traffic_class, _, _) in zip(requests, arrivals, strict=True):
        # A class waits for no more than its share allows the others, and a request for no more than
        # all of its class: the bound of fair queueing, plus a block of each for granularity.
        mine = sum(sum(b) for name, b, _ in arrivals if name == traffic_class)
        factor = {"short": 5, "long": 2, "background": 62}[traffic_class]
        assert request.ended_at - request.came_at <= factor * (mine + 126) + 2 * 126


def test_a_removed_request_is_not_served() -> None:
    encoder, gone, there = Encoder(), page(), page()
    encoder.add(gone, there)
    encoder.queue.remove(gone)
    encoder.run(1_000)
    assert gone.served == 0
    assert there.served == 300
    assert FairQueue().next() is None

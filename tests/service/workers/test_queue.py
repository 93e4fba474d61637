"""The queue by itself: the bound in tokens, the fair order, the packing of calls."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import OverloadedError, RequestTooLargeError, ShuttingDownError
from service.workers.queue import BlockQueue, EncodeTask
from tests.kit.service_fixtures import document_of

BOUND = 1000


def make_queue(*, batch_tokens: int = 0, max_seconds: float = math.inf) -> BlockQueue:
    return BlockQueue(BOUND, batch_tokens=batch_tokens, max_seconds=max_seconds)


def make_task(*lengths: int) -> EncodeTask:
    return EncodeTask(document_of(*([1] * length for length in lengths)), width=1)


operations = st.lists(
    st.tuples(st.sampled_from(["reserve", "resize", "release"]), st.integers(0, 2 * BOUND))
)


@given(operations)
def test_the_bound_is_never_exceeded_and_all_is_given_back(steps: list[tuple[str, int]]) -> None:
    queue, held = make_queue(), []
    for step, number in steps:
        before = queue.queued_tokens
        try:
            if step == "reserve":
                held.append(queue.reserve(number))
            elif held and step == "resize":
                held[number % len(held)].resize(number)
            elif held:
                queue.release(held.pop(number % len(held)))
        except (OverloadedError, RequestTooLargeError):
            assert queue.queued_tokens == before
        assert 0 <= queue.queued_tokens <= BOUND
        assert queue.queued_tokens == sum(reservation.tokens for reservation in held)
    for reservation in held:
        queue.release(reservation)
    assert queue.queued_tokens == 0


def test_an_empty_queue_admits_a_request_of_any_size() -> None:
    queue = make_queue()
    with queue.reserve(50 * BOUND):
        assert queue.queued_tokens == BOUND
        with pytest.raises(OverloadedError):
            queue.reserve(1)
    with queue.reserve(1):
        assert queue.queued_tokens == 1


def test_a_request_that_proves_too_large_keeps_nothing() -> None:
    queue = make_queue()
    with pytest.raises(RequestTooLargeError) as caught, queue.reserve(10) as reservation:
        reservation.resize(BOUND + 1)
    assert caught.value.members == {"tokens": BOUND + 1, "limit": BOUND}
    with queue.reserve(600), pytest.raises(OverloadedError), queue.reserve(300) as reservation:
        reservation.resize(401)
    assert queue.queued_tokens == 0


def seconds_to_empty(queue: BlockQueue) -> int:
    with queue.reserve(BOUND), pytest.raises(OverloadedError) as caught:
        queue.reserve(1)
    return caught.value.members["retry_after"]


@pytest.mark.parametrize(
    ("tokens_per_second", "seconds"), [(100.0, 10), (300.0, 4), (1e6, 1), (0.0, 1)]
)
def test_a_rejection_says_when_the_queue_will_be_empty(
    tokens_per_second: float, seconds: int
) -> None:
    queue = make_queue()
    queue.measure(tokens_per_second, 1.0)
    assert seconds_to_empty(queue) == seconds


def test_the_measured_rate_follows_a_change_of_speed() -> None:
    queue = make_queue()
    for _ in range(200):
        queue.measure(1000.0, 1.0)
    for _ in range(200):
        queue.measure(100.0, 1.0)
    assert seconds_to_empty(queue) == 10


def admitted(queue: BlockQueue, ahead: int) -> bool:
    """Return whether a request is admitted behind so many tokens; restore the queue."""
    before = dict(queue._rejected)
    try:
        with queue.reserve(ahead), queue.reserve(1):
            return True
    except OverloadedError:
        return False
    finally:
        queue._rejected.update(before)


def test_work_of_one_client_keeps_no_other_client_out() -> None:
    queue = make_queue(max_seconds=1.0)
    queue.measure(1.0, 1.0)
    with queue.reserve(20, client="greedy"):
        with pytest.raises(OverloadedError):
            queue.reserve(1, client="greedy")
        with queue.reserve(1, client="other"), pytest.raises(OverloadedError):
            queue.reserve(1, client="other")  # which has work ahead by now


def test_the_bound_falls_with_rejections_and_recovers() -> None:
    queue = make_queue(max_seconds=1.0)
    queue.measure(10.0, 1.0)  # so 10 tokens are a second of work
    assert [admitted(queue, ahead) for ahead in (10, 11)] == [True, False]
    with queue.reserve(11):
        for _ in range(6):
            with pytest.raises(OverloadedError):
                queue.reserve(1)
    assert admitted(queue, 7)  # a burst leaves the bound nearly as it was
    with queue.reserve(20):
        for _ in range(200):
            with pytest.raises(OverloadedError):
                queue.reserve(1)
    assert [admitted(queue, ahead) for ahead in (1, 2)] == [True, False]
    assert queue._rejected["long"] == 0  # each class has a share of its own
    for _ in range(100):
        with queue.reserve(1):
            pass
    assert [admitted(queue, ahead) for ahead in (9, 11)] == [True, False]


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(1, 300),
)
def test_a_packed_call_keeps_its_budget(documents: list[list[int]], budget: int) -> None:
    queue = make_queue(batch_tokens=budget)
    tasks = [make_task(*lengths) for lengths in documents]
    for task in tasks:
        queue.submit(queue.reserve(0), [task])
    left = sum(len(lengths) for lengths in documents)
    taken = []
    while left:
        blocks = queue.take()
        lengths = [block.tokens + 2 for block in blocks]
        assert lengths == sorted(lengths)
        assert len(blocks) == 1 or max(lengths) * len(blocks) <= budget
        taken += [(block.task, *block.rows) for block in blocks]
        left -= len(blocks)
    assert len(set(taken)) == len(taken) == sum(len(task.ids) for task in tasks)


def test_tokens_leave_the_queue_as_their_blocks_are_computed() -> None:
    queue = make_queue()
    with queue.reserve(30) as reservation:
        queue.submit(reservation, [make_task(10, 20)])
        assert queue.store_vectors(queue.take(), np.ones((1, 1), np.float32)) == []
        assert queue.queued_tokens == 20
        (last,) = queue.store_vectors(queue.take(), np.ones((1, 1), np.float32))
        assert queue.queued_tokens == 0
        assert last.task.vectors.tolist() == [[1.0], [1.0]]


def test_a_closed_queue_rejects_what_comes() -> None:
    queue = make_queue()
    reservation = queue.reserve(10)
    assert queue.close(ShuttingDownError) == []
    assert queue.take() == []
    with pytest.raises(ShuttingDownError):
        queue.submit(reservation, [make_task(1)])
    queue.release(reservation)
    assert queue.queued_tokens == 0


def test_the_background_takes_no_room_from_requests() -> None:
    queue = make_queue()
    with queue.reserve(50 * BOUND, background=True) as reservation:
        reservation.resize(50 * BOUND)
        assert queue.queued_tokens == 0
        queue.release(queue.reserve(BOUND))
    assert queue.queued_tokens == 0


def test_a_batch_fills_up_with_the_background() -> None:
    queue = make_queue(batch_tokens=30)
    later, first = queue.reserve(20, background=True), queue.reserve(4)
    queue.submit(later, [make_task(*[1] * 20)])
    queue.submit(first, [make_task(*[1] * 4)])
    taken = [block.reservation for block in queue.take()]
    assert (taken.count(first), taken.count(later)) == (4, 6)

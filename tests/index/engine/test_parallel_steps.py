"""Two steps of a search at once, or one after the other."""

import threading
from collections.abc import Callable

import pytest

from index.engine.parallel_steps import ParallelSteps

SECONDS = 120  # until a test fails that waits for another thread


def this_thread() -> int:
    return threading.get_ident()


def fail(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def test_two_steps_run_at_once_where_a_core_is_free() -> None:
    steps, both = ParallelSteps(2), threading.Barrier(2)
    with steps.searching():
        first, second = steps.both(
            lambda: (both.wait(SECONDS), this_thread()), lambda: (both.wait(SECONDS), this_thread())
        )
    assert first[1] == this_thread() != second[1]


@pytest.mark.parametrize("cores", [1, 2])
def test_they_run_in_their_order_where_every_core_has_a_search(cores: int) -> None:
    steps, order = ParallelSteps(cores), list[str]()
    with steps.searching(), steps.searching():
        threads = steps.both(
            lambda: (order.append("first"), this_thread()),
            lambda: (order.append("second"), this_thread()),
        )
    assert [thread[1] for thread in threads] == [this_thread(), this_thread()]
    assert order == ["first", "second"]
    assert steps.both(this_thread, this_thread)[0] == this_thread()


def test_without_a_free_core_the_caller_runs_both_steps() -> None:
    steps, occupied, ended = ParallelSteps(2), threading.Event(), threading.Event()

    def occupy() -> None:
        occupied.set()
        assert ended.wait(SECONDS)

    other = threading.Thread(target=steps.both, args=(lambda: None, occupy))
    other.start()
    assert occupied.wait(SECONDS)
    assert steps.both(lambda: "first", this_thread) == ("first", this_thread())
    with pytest.raises(OSError, match="first"):
        steps.both(fail(OSError("first")), this_thread)
    ended.set()
    other.join(SECONDS)


@pytest.mark.parametrize("cores", [0, 2])
def test_an_error_of_either_step_is_raised_and_of_both_the_first(cores: int) -> None:
    steps = ParallelSteps(cores)
    for first, second, expected in (
        (fail(OSError("first")), this_thread, "first"),
        (this_thread, fail(OSError("second")), "second"),
        (fail(OSError("first")), fail(OSError("second")), "first"),
    ):
        with pytest.raises(OSError, match=expected):
            steps.both(first, second)
    assert steps.both(lambda: 1, lambda: 2) == (1, 2)


def test_without_a_helper_its_own_thread_does_both() -> None:
    ended, disabled = ParallelSteps(2), ParallelSteps(2)
    ended._helper.shutdown()  # as the end of the interpreter does
    disabled.disable()
    for steps in (ended, disabled):
        assert steps.both(this_thread, this_thread) == (this_thread(), this_thread())

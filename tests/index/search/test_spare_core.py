"""Two steps of a search at once, or one after the other."""

import threading
from collections.abc import Callable

import pytest

from index.search.spare_core import SpareCore

SECONDS = 120  # until a test fails that waits for another thread


def own_thread() -> int:
    return threading.get_ident()


def fail(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def test_two_steps_run_at_once_where_a_core_is_free() -> None:
    core, both = SpareCore(2), threading.Barrier(2)
    with core.searching():
        here, beside = core.both(
            lambda: (both.wait(SECONDS), own_thread()), lambda: (both.wait(SECONDS), own_thread())
        )
    assert here[1] == own_thread() != beside[1]


@pytest.mark.parametrize("cores", [1, 2])
def test_they_run_in_their_order_where_every_core_has_a_search(cores: int) -> None:
    core, order = SpareCore(cores), list[str]()
    with core.searching(), core.searching():
        threads = core.both(
            lambda: (order.append("here"), own_thread()),
            lambda: (order.append("beside"), own_thread()),
        )
    assert [one[1] for one in threads] == [own_thread(), own_thread()]
    assert order == ["here", "beside"]
    assert core.both(own_thread, own_thread)[0] == own_thread()


def test_a_step_that_no_core_was_found_for_is_done_by_its_own_thread() -> None:
    core, occupied, ended = SpareCore(2), threading.Event(), threading.Event()

    def occupy() -> None:
        occupied.set()
        assert ended.wait(SECONDS)

    other = threading.Thread(target=core.both, args=(lambda: None, occupy))
    other.start()
    assert occupied.wait(SECONDS)
    assert core.both(lambda: "here", own_thread) == ("here", own_thread())
    with pytest.raises(OSError, match="here"):
        core.both(fail(OSError("here")), own_thread)
    ended.set()
    other.join(SECONDS)


@pytest.mark.parametrize("cores", [0, 2])
def test_an_error_of_either_step_is_raised_and_of_both_the_first(cores: int) -> None:
    core = SpareCore(cores)
    for here, beside, expected in (
        (fail(OSError("here")), own_thread, "here"),
        (own_thread, fail(OSError("beside")), "beside"),
        (fail(OSError("here")), fail(OSError("beside")), "here"),
    ):
        with pytest.raises(OSError, match=expected):
            core.both(here, beside)
    assert core.both(lambda: 1, lambda: 2) == (1, 2)


def test_without_a_helper_its_own_thread_does_both() -> None:
    ended, given_up = SpareCore(2), SpareCore(2)
    ended._helper.shutdown()  # as the end of the interpreter does
    given_up.give_up()
    for core in (ended, given_up):
        assert core.both(own_thread, own_thread) == (own_thread(), own_thread())

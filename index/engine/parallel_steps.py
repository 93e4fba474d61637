"""Two steps of a search at once, where a core has nothing else to do.

A search compares vectors and reads words, independently of each other, and FAISS does not hold the
interpreter lock. As long as there are fewer searches than cores, another core does one of the two.
With more of them all cores have work, and to hand steps from thread to thread would only cost.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from encoder.onnx_encoder import usable_cores

A = TypeVar("A")
B = TypeVar("B")


class ParallelSteps:
    """Knows how many searches run in this process, and has a second thread for them."""

    def __init__(self, cores: int) -> None:
        """Start no thread yet."""
        self._cores = cores
        self._searches = 0
        self._counting = threading.Lock()
        self._helper = ThreadPoolExecutor(1, "second step of a search")

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Count a search while the block, or the decorated function, runs."""
        with self._counting:
            self._searches += 1
        try:
            yield
        finally:
            with self._counting:
                self._searches -= 1

    def both(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Return what two functions return: called at once, or one after the other.

        The error of the first is raised before that of the second, which may not have been called.
        """
        helped = self._hand_over(second)
        if helped is None:
            return first(), second()
        try:
            result = first()
        except BaseException:
            if not helped.cancel():
                wait([helped])  # it uses what the caller may close next
            raise
        # The helper may have had no core in all that time.
        return result, second() if helped.cancel() else helped.result()

    def disable(self) -> None:
        """Call functions one after the other from now on: other processes use the cores."""
        self._cores = 0

    def _hand_over(self, function: Callable[[], B]) -> Future[B] | None:
        if self._searches >= self._cores:
            return None
        try:
            return self._helper.submit(copy_context().run, function)
        except RuntimeError:  # the interpreter ends
            return None


PARALLEL_STEPS = ParallelSteps(usable_cores())

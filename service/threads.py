"""Blocking work off the event loop, the priority of its threads, and their memory."""

import asyncio
import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

from service.errors import ShuttingDownError, describe

P = ParamSpec("P")
T = TypeVar("T")

_RETRY_SECONDS = 1.0
_NICE = 10  # above the niceness of the process
_SWITCH_SECONDS = 0.0005
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_THRESHOLD_BYTES = 4 * 2**20
_KEPT_BYTES = 16 * 2**20

_LOG = logging.getLogger(__name__)


async def run_in(
    executor: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a function in a thread of `executor`; ShuttingDownError if that was shut down.

    When the caller is cancelled, a call that has started runs to its end, and one that has not is
    never made.
    """
    try:
        # In the context of the request: its id is in the logs, its trace has the stages.
        within = partial(copy_context().run, partial(function, *args, **kwargs))
        call = executor.submit(within)
    except RuntimeError as error:
        raise ShuttingDownError from error
    try:
        return await asyncio.wrap_future(call)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is None or caller.cancelling():
            raise
        raise ShuttingDownError from None  # before the call was made


def lower_priority() -> None:
    """Lower the priority of this thread, which computes, below that of the event loop.

    Otherwise, under load, a rejection waits for the processor longer than it may take. Call it in
    every computing thread or in none: a low-priority thread sometimes holds the interpreter lock,
    and would then wait for normal-priority threads that compute, with the event loop waiting for
    the lock (measured both ways: benchmarks/server/overload.py). On Linux a thread has its own
    priority; elsewhere this does nothing.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)


class Worker:
    """A thread of low priority that works, rests, and works again, sooner where it is woken.

    A failure is logged once, however often it comes again, and the work is tried again.

    Attributes:
        woken: set when there may be something to do.
        stopping: set when the work is to end.
        thread: None before `start`.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        """Do nothing before `start`.

        Args:
            name: of what is done, in the plural.
            work: does a part of it; returns the seconds to rest, 0 where there may be more, or None
                to rest until it is woken.
        """
        self.woken = threading.Event()
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self._name, self._work = name, work
        self._starting = threading.Lock()

    def start(self, rest: float = 0.0) -> None:
        """Start the thread, which rests first, unless there is one or it is to stop."""
        with self._starting:
            if self.thread is None and not self.stopping.is_set():
                self.thread = threading.Thread(
                    target=self._run, args=(rest,), name=self._name, daemon=True
                )
                self.thread.start()

    def stop(self) -> None:
        """Ask the thread to stop, without waiting for it."""
        self.stopping.set()
        self.woken.set()

    def close(self) -> None:
        """Stop, and wait for the thread; closing twice does nothing."""
        self.stop()
        with self._starting:
            thread = self.thread
        if thread is not None:
            thread.join()

    def _run(self, rest: float | None) -> None:
        lower_priority()
        said = ""
        while True:
            if rest != 0:
                self.woken.wait(rest)
            if self.stopping.is_set():
                return
            self.woken.clear()  # what comes after this wakes it again
            try:
                rest, said = self._work(), ""
            except Exception as error:
                if said != (said := describe(error)):
                    _LOG.error("%s are paused: %s", self._name, said)
                self.stopping.wait(_RETRY_SECONDS)
                rest = 0.0


def limit_numpy_threads() -> None:
    """Let NumPy multiply matrices in the calling thread alone.

    The products of a search take microseconds. OpenBLAS spreads them over all cores, whose threads
    then wait in a loop: under load a search took ten times the CPU time (measured:
    benchmarks/server/search.py). Searches run in parallel anyway. FAISS has a library of its own,
    which is left as it is.
    """
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        if "numpy" in library.filepath:
            library.set_num_threads(1)


def set_switch_interval() -> None:
    """Set the switch interval of the interpreter to half a millisecond instead of five.

    The event loop waits for the interpreter lock many times in one request, and at the start the
    thread that opens the encoder waits for the one that imports.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)


def cap_malloc_threshold() -> bool:
    """Make glibc return every freed block of 4 MiB or more to the operating system.

    By default glibc raises that threshold to the largest block ever freed, up to 32 MiB. The
    buffers of books then come from heaps that the small objects of other threads keep from
    shrinking, and the process grows whenever a larger book arrives (measured:
    benchmarks/server/load.py).

    Setting it fixes another limit, too: of the free memory at the end of a heap, all but 128 KiB
    is given back. A search would then get its few megabytes from the operating system, page by
    page, and return them, each time; so a heap may keep 16 MiB.

    Returns:
        Whether the C library is glibc and accepted it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return (
        mallopt is not None
        and bool(mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES))
        and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
    )

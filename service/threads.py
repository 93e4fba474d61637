"""Work that blocks, off the event loop."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from service.errors import ShuttingDownError

P = ParamSpec("P")
T = TypeVar("T")

_NICE = 10  # beyond the niceness that the process was started with
_SWITCH_SECONDS = 0.0005


async def run_in(
    executor: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a function in a thread of `executor`.

    When the caller is cancelled, a call that has begun runs to its end, and one that has not is
    never made.

    Raises:
        ShuttingDownError: the executor was shut down.
    """
    try:
        call = executor.submit(function, *args, **kwargs)
    except RuntimeError as error:
        raise ShuttingDownError from error
    return await asyncio.wrap_future(call)


def lower_priority() -> None:
    """Let the event loop go first on the processor: this thread computes.

    Without it a refusal waits for its turn among all that is encoded, which under load is longer
    than a refusal may take. For every thread that computes, or none: one that gives way holds the
    interpreter now and then, and where others that compute did not, it would wait for them with
    the event loop behind it (measured both ways: benchmarks/server/overload.py). On Linux a thread
    has a priority of its own; elsewhere nothing is done.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)


def set_switch_interval() -> None:
    """Let a thread that waits for the interpreter have it after half a millisecond, not after five.

    The event loop waits for it many times in one request.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)

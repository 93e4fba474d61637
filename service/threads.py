"""Work that blocks, off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from service.errors import ShuttingDownError

P = ParamSpec("P")
T = TypeVar("T")


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

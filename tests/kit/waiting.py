"""How long tests wait for something to happen: a limit that a busy machine does not reach."""

import asyncio
import time
from collections.abc import Callable

TIMEOUT_S = 120.0


def wait_until(condition: Callable[[], object], message: object = "it never came") -> None:
    """Wait until a condition holds; fail after `TIMEOUT_S`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)


async def wait_in_loop(condition: Callable[[], object], message: object = "it never came") -> None:
    """The same, while the event loop goes on."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, message
        await asyncio.sleep(0.01)

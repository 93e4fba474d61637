"""How many requests are in the house at a time."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import OverloadedError, ShuttingDownError

_RETRY_SECONDS = 1
_POLL_SECONDS = 0.02


class Admission:
    """Counts the requests that are worked on and refuses those over the limit.

    It bounds all that is not counted in tokens: bodies held in memory, jobs that wait for a
    thread. To be used from the event loop only.
    """

    def __init__(self, max_requests: int) -> None:
        self.max_requests = max_requests
        self.active = 0
        self._closing = False

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count one request for as long as the block runs.

        Raises:
            OverloadedError: as many as are allowed are active.
            ShuttingDownError: `drain` was called.
        """
        if self._closing:
            raise ShuttingDownError
        if self.active >= self.max_requests:
            raise OverloadedError(_RETRY_SECONDS, "active_requests")
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    async def drain(self, seconds: float) -> bool:
        """Refuse new requests and wait until the active ones end, at most `seconds`.

        Returns:
            Whether all of them ended.
        """
        self._closing = True
        deadline = time.monotonic() + seconds
        while self.active and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return not self.active

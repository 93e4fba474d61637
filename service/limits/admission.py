"""The limit on requests that are active at a time."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import OverloadedError, RejectionReason, ShuttingDownError

_RETRY_SECONDS = 1
_POLL_SECONDS = 0.02


class Admission:
    """Counts active requests and rejects those over the limit.

    It bounds everything that is not counted in tokens: bodies held in memory, calls that wait for a
    thread. Use it from the event loop only.
    """

    def __init__(self, max_requests: int, reason: RejectionReason = "active_requests") -> None:
        """Count none yet.

        Args:
            max_requests: that may be active at a time.
            reason: why others are rejected, for the metrics.
        """
        self.max_requests = max_requests
        self._reason: RejectionReason = reason
        self.active = 0
        self._full_since: float | None = None
        self._closing = False

    @property
    def full_seconds(self) -> float:
        """Seconds since all places were taken and none became free; 0 while one is free."""
        return 0.0 if self._full_since is None else time.monotonic() - self._full_since

    @property
    def closing(self) -> bool:
        """Whether no request is admitted any more, and those that never end are to end."""
        return self._closing

    def close(self) -> None:
        """Reject new requests."""
        self._closing = True

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count one request as active while the block runs.

        Raises:
            OverloadedError: the limit is reached.
            ShuttingDownError: `close` or `drain` was called.
        """
        if self._closing:
            raise ShuttingDownError
        if self.active >= self.max_requests:
            raise OverloadedError(_RETRY_SECONDS, self._reason)
        self.active += 1
        if self.active == self.max_requests:
            self._full_since = time.monotonic()
        try:
            yield
        finally:
            self.active -= 1
            self._full_since = None

    async def drain(self, seconds: float) -> bool:
        """Reject new requests and wait up to `seconds` until no request is active.

        Returns:
            Whether all of them ended in time.
        """
        self.close()
        deadline = time.monotonic() + seconds
        while self.active and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return not self.active

"""A body on its way: it takes room in the queue as it grows, and may not take for ever."""

import asyncio
import time

from starlette.types import Message, Receive

from service.errors import UploadTooSlowError
from service.queued_work import Reservation

_BYTES_PER_TOKEN = 4  # of English in JSON; what a text really has is counted when it is read
_BYTES_PER_SECOND = 64 * 1024  # an upload that is as fast is never too slow
_STALL_SECONDS = 1.0  # others do not wait for a body that has not come by then


def tokens_of(length: int, most: int) -> int:
    """Return the tokens that a body is taken to have.

    Args:
        length: of the body, in bytes.
        most: tokens that the queue holds; one body is never taken for more than half of them, so
            that it finds room beside small ones.
    """
    return min(length // _BYTES_PER_TOKEN + 1, most // 2)


class Upload:
    """The `receive` of an application whose body is counted and timed."""

    def __init__(self, receive: Receive, place: Reservation, seconds: float, most: int) -> None:
        """Watch over a body.

        Args:
            receive: of the server.
            place: of the request; grows when the body is longer than was announced.
            seconds: that the body may take, beside a second for each 64 KiB.
            most: tokens that the queue holds.
        """
        self._receive = receive
        self._place = place
        self._seconds = seconds
        self._most = most
        self._waited = 0.0
        self._complete = False
        self.received = 0

    async def receive(self) -> Message:
        """Receive the next part of the body, or what comes after it.

        Raises:
            UploadTooSlowError: it did not come in time.
            OverloadedError: the body has become longer than there is room for.
        """
        if self._complete:
            return await self._receive()
        started = time.monotonic()
        message = await self._next_part()
        self._waited += time.monotonic() - started
        self.received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        tokens = tokens_of(self.received, self._most)
        if tokens > self._place.tokens:
            self._place.resize(tokens)
        if self._complete:
            self._place.stall(False)
        return message

    async def _next_part(self) -> Message:
        left = self._seconds + self.received / _BYTES_PER_SECOND - self._waited
        part = asyncio.ensure_future(self._receive())
        try:
            for seconds in (min(left, _STALL_SECONDS), left - _STALL_SECONDS):
                await asyncio.wait({part}, timeout=max(0.0, seconds))
                if part.done():
                    return part.result()
                self._stall()
            raise UploadTooSlowError
        finally:
            part.cancel()

    def _stall(self) -> None:
        """Keep room for what has come, not for what was announced: others want it."""
        self._place.stall(True)
        self._place.resize(tokens_of(self.received, self._most))

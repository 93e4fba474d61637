"""What a request costs its client: tokens of the rate limit, spent as its body grows."""

import asyncio

from service.errors import RateLimitedError
from service.limits.rate_limit import WINDOW_SECONDS, RateLimiter, RateLimitStatus

BYTES_PER_TOKEN = 4  # of English in JSON; the actual tokens are counted when the body is read
_SLICE_TOKENS = 4096  # a growing body is charged in slices: each may be a call of Redis


def rate_limit_headers(status: RateLimitStatus) -> dict[str, str]:
    """Return the headers that tell a client how many tokens it has left, and for how long."""
    return {
        "RateLimit-Policy": f'"tokens";q={status.limit};w={WINDOW_SECONDS}',
        "RateLimit": f'"tokens";r={status.remaining};t={status.reset_seconds}',
    }


def tokens_of(size: int) -> int:
    """Return the estimated tokens of a body of so many bytes."""
    return size // BYTES_PER_TOKEN + 1


class Charge:
    """The tokens that one request has spent.

    A request costs the estimated tokens of its body, however the body is sent: announced, in
    chunks, or compressed, where the decompressed bytes count.
    """

    def __init__(self, limiter: RateLimiter | None, client: str) -> None:
        """Spend nothing yet.

        Args:
            limiter: of the service; without one, nothing is charged.
            client: the name of the client, by `client_name`.
        """
        self._limiter = limiter
        self._client = client
        self._spent = 0
        self._status: RateLimitStatus | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The rate limit headers of the response; none without a rate limit."""
        return rate_limit_headers(self._status) if self._status else {}

    async def cover(self, size: int, *, complete: bool = False) -> None:
        """Spend what a body of so many bytes costs and what has not been spent.

        Args:
            size: of the body so far, in bytes.
            complete: there is no more of it: spend the last tokens, however few.

        Raises:
            RateLimitedError: the client has too few tokens.
        """
        tokens = tokens_of(size)
        more = tokens - self._spent
        if self._limiter is None or more <= 0 or not (complete or more >= _SLICE_TOKENS):
            return
        spend, spent = self._limiter.spend, self._spent
        status = await asyncio.to_thread(spend, self._client, more, spent)
        self._status = status
        if not status.admitted:
            raise RateLimitedError(status.limit, status.retry_after, self.headers)
        self._spent = tokens

"""How many tokens a client may ask for: a bucket that fills steadily, and that a request empties.

The generic cell rate algorithm (ITU-T I.371): of a client one number is kept, the time at which its
bucket will be full. A bucket holds one minute's tokens. A request of more waits until the bucket is
full, and the client then owes the rest.
"""

import hashlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from service.limits.redis_client import RedisClient

WINDOW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """What became of a request.

    Attributes:
        admitted: whether its tokens were spent.
        limit: tokens a minute.
        remaining: tokens that the client may ask for now.
        reset_seconds: whole seconds until its bucket is full.
        retry_after: whole seconds until the same request is admitted; 0 for one that was.
    """

    admitted: bool
    limit: int
    remaining: int
    reset_seconds: int
    retry_after: int


def verdict(limit: int, tokens: int, admitted: bool, owed: float) -> RateLimitStatus:
    """Return the verdict on a request.

    Args:
        limit: tokens a minute.
        tokens: that were asked for.
        admitted: whether they were spent.
        owed: seconds until the bucket is full.
    """
    token = WINDOW_SECONDS / limit
    wait = owed + min(tokens, limit) * token - WINDOW_SECONDS
    return RateLimitStatus(
        admitted=admitted,
        limit=limit,
        remaining=max(0, math.floor((WINDOW_SECONDS - owed) / token)),
        reset_seconds=math.ceil(owed),
        retry_after=0 if admitted else max(1, math.ceil(wait)),
    )


_MAX_CLIENTS = 100_000  # counted in this process; who was seen longest ago is forgotten
_PREFIX = "longmatch:rate:"
_ROUNDING = 1e-6  # seconds

# KEYS: the client. ARGV: seconds a token takes, tokens asked for, tokens of a full bucket.
# Redis's clock, since servers that share a bucket must share a clock. Returns {admitted, seconds
# until the bucket is full}, as strings: a number would lose its fraction.
_SPEND = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local token, tokens, bucket = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
if full - now + math.min(tokens, bucket) * token > bucket * token + 0.000001 then
  return {'0', string.format('%.6f', full - now)}
end
full = full + tokens * token
redis.call('SET', KEYS[1], string.format('%.6f', full), 'EX', math.ceil(full - now) + 1)
return {'1', string.format('%.6f', full - now)}
"""


class RateLimiter(Protocol):
    """Counts the tokens of each client."""

    def spend(self, client: str, tokens: int) -> RateLimitStatus:
        """Spend tokens of a client, or none when it has too few; may block for a moment."""


class LocalRateLimiter:
    """Counts in this process; for any thread."""

    def __init__(self, tokens_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = tokens_per_minute
        self._clock = clock
        self._full: OrderedDict[str, float] = OrderedDict()  # least recently seen first
        self._lock = threading.Lock()

    def spend(self, client: str, tokens: int) -> RateLimitStatus:
        """See `RateLimiter`."""
        token = WINDOW_SECONDS / self._limit
        with self._lock:
            now = self._clock()
            owed = max(self._full.pop(client, now) - now, 0.0)
            admitted = owed + min(tokens, self._limit) * token <= WINDOW_SECONDS + _ROUNDING
            owed += tokens * token if admitted else 0.0
            self._full[client] = now + owed
            if len(self._full) > _MAX_CLIENTS:
                self._full.popitem(last=False)
        return verdict(self._limit, tokens, admitted, owed)


class RedisRateLimiter:
    """Counts in Redis, for all servers together; in this process while Redis does not work."""

    def __init__(self, link: RedisClient, tokens_per_minute: int) -> None:
        self._link = link
        self._limit = tokens_per_minute
        self._alone = LocalRateLimiter(tokens_per_minute)

    def spend(self, client: str, tokens: int) -> RateLimitStatus:
        """See `RateLimiter`."""
        arguments = (WINDOW_SECONDS / self._limit, tokens, self._limit)

        def ask(redis: Any) -> Any:
            return redis.eval(_SPEND, 1, _PREFIX + client, *arguments)

        answer = self._link.call(ask)
        if answer is None:
            return self._alone.spend(client, tokens)
        return verdict(self._limit, tokens, answer[0] == b"1", float(answer[1]))


def client_name(key: str, address: str) -> str:
    """Return who asks: by its key, of which only a digest is kept, or else by its address."""
    if key:
        return f"key:{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"
    return f"address:{address}"

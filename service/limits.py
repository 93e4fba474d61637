"""How much work is accepted: active requests and bytes of bodies at a time, tokens of each client.

The tokens of a client are a bucket that refills steadily, by the generic cell rate algorithm
(ITU-T I.371): one number is stored for each client, the time at which its bucket will be full. A
bucket holds the tokens of one minute. A request of more tokens is admitted once the bucket is full,
and the client then owes the rest. A request is admitted by the length that it announces; what its
body has in addition is owed, too.
"""

import asyncio
import ipaddress
import math
import shutil
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from index.errors import StorageFullError
from service.errors import OverloadedError, RateLimitedError, RejectionReason
from service.redis_client import RedisClient

_RETRY_SECONDS = 1


class Admission:
    """Counts what active requests hold, places or bytes, and rejects what is over the limit.

    One client may hold half of it. Use it from the event loop only.
    """

    def __init__(self, limit: int, reason: RejectionReason = "active_requests") -> None:
        """Hold nothing yet."""
        self._limit = limit
        self._reason: RejectionReason = reason
        self._held: Counter[str | None] = Counter()  # by clients
        self._full_since: float | None = None

    @property
    def active(self) -> int:
        """How much is held now."""
        return self._held.total()

    @property
    def full_seconds(self) -> float:
        """Seconds since all was held and nothing was given back; 0 while there is room."""
        return 0.0 if self._full_since is None else time.monotonic() - self._full_since

    @contextmanager
    def admit(self, client: str | None = None, size: int = 1) -> Iterator[Callable[[int], None]]:
        """Hold a place, or so many bytes, while the block runs; yields what changes how many.

        Args:
            client: whose request it is; None does not share with anybody.
            size: how much it holds at first.

        Raises:
            OverloadedError: there is no room, of all or of this client; a change raises it, too.
        """
        held = 0

        def resize(size: int) -> None:
            nonlocal held
            more = size - held
            # Half is rounded up: a single place is for any client.
            over = client is not None and 2 * (self._held[client] + more) > self._limit + 1
            if more > 0 and (over or self.active + more > self._limit):
                raise OverloadedError(_RETRY_SECONDS, self._reason)
            held = size
            self._held[client] += more
            if not self._held[client]:
                del self._held[client]
            if more:
                self._full_since = time.monotonic() if self.active == self._limit else None

        try:
            resize(size)
            yield resize
        finally:
            resize(0)


def check_disk(folder: Path, size: int, reserve: int) -> None:
    """Check that so many bytes more leave a reserve of the disk, in which a delete can work.

    Raises:
        StorageFullError: they do not.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # the write itself will tell
        return
    if free - size < reserve:
        raise StorageFullError(folder.name, f"it has {free} bytes free, and writes leave {reserve}")


WINDOW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The outcome for one request, and what its client has left.

    Attributes:
        admitted: whether its tokens were spent.
        limit: tokens a minute.
        remaining: tokens that the client may use now.
        reset_seconds: whole seconds until its bucket is full.
        retry_after: whole seconds until the same request is admitted; 0 if it was.
    """

    admitted: bool
    limit: int
    remaining: int
    reset_seconds: int
    retry_after: int


_MAX_CLIENTS = 100_000  # of this process; the least recently seen is dropped
_PREFIX = "longmatch:rate:"
_MAX_TOKENS = 1e12  # that one client may owe
_ROUNDING = 1e-6  # seconds

# KEYS: the client. ARGV: seconds that the tokens take, seconds that the client may owe before, most
# seconds that a client may owe at all. It reads the clock of Redis: servers that share a bucket
# must share a clock. A value that it did not write, which may be anything, counts as missing. It
# returns {admitted, seconds until the bucket is full} as strings: a number would lose its fraction.
_SPEND = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local stored = redis.pcall('GET', KEYS[1])
stored = type(stored) == 'string' and string.match(stored, '^%d+%.%d+$') and tonumber(stored) or 0
if stored > now + tonumber(ARGV[3]) then stored = 0 end
local full = math.max(stored, now)
if full - now > tonumber(ARGV[2]) then return {'0', string.format('%.6f', full - now)} end
full = full + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.6f', full), 'EX', math.ceil(full - now) + 1)
return {'1', string.format('%.6f', full - now)}
"""


class RateLimiter:
    """Counts the tokens of each client; thread-safe.

    In Redis, if there is one, for all servers together; in this process without, and while it is
    unavailable.
    """

    def __init__(
        self,
        tokens_per_minute: int,
        redis: RedisClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = tokens_per_minute
        self._redis = redis
        self._clock = clock
        self._full: OrderedDict[str, float] = OrderedDict()  # least recently seen first
        self._lock = threading.Lock()

    def spend(self, client: str, tokens: int, *, owed: bool = False) -> RateLimitStatus:
        """Spend tokens of a client, by `client_name`, or none if it has too few; may block briefly.

        Those that are `owed`, of a request that was admitted, are spent in any case.
        """
        token = WINDOW_SECONDS / self._limit
        room = math.inf if owed else WINDOW_SECONDS - min(tokens, self._limit) * token + _ROUNDING
        found = self._spend_in_redis(client, tokens * token, room)
        admitted, debt = found or self._spend_here(client, tokens * token, room)
        return RateLimitStatus(
            admitted=admitted,
            limit=self._limit,
            remaining=max(0, math.floor((WINDOW_SECONDS - debt) / token)),
            reset_seconds=math.ceil(debt),
            retry_after=0 if admitted else max(1, math.ceil(debt - room)),
        )

    def _spend_here(self, client: str, seconds: float, room: float) -> tuple[bool, float]:
        with self._lock:
            now = self._clock()
            debt = max(self._full.pop(client, now) - now, 0.0)
            admitted = debt <= room
            debt += seconds if admitted else 0.0
            self._full[client] = now + debt
            if len(self._full) > _MAX_CLIENTS:
                self._full.popitem(last=False)
        return admitted, debt

    def _spend_in_redis(
        self, client: str, seconds: float, room: float
    ) -> tuple[bool, float] | None:
        if self._redis is None:
            return None
        most = WINDOW_SECONDS + _MAX_TOKENS * WINDOW_SECONDS / self._limit
        arguments = (_PREFIX + client, seconds, min(room, most), most)
        result = self._redis.call(lambda redis: redis.eval(_SPEND, 1, *arguments))
        return None if result is None else (result[0] == b"1", float(result[1]))


BYTES_PER_TOKEN = 4  # of English in JSON; the actual tokens are counted when the body is read


def tokens_of(size: int) -> int:
    """Return the estimated tokens of a body of so many bytes."""
    return size // BYTES_PER_TOKEN + 1


def estimate_tokens(length: int, max_queue_tokens: int) -> int:
    """Return the tokens that are reserved for a body of so many bytes.

    They are at most half of what the queue holds, so that a large body finds room among small ones.
    """
    return min(tokens_of(length), max_queue_tokens // 2)


@dataclass(slots=True)
class RateLimitCharge:
    """The tokens that one request has spent; nothing is charged without a limiter.

    A request costs the estimated tokens of its body, however the body is sent: announced, in
    chunks, or compressed, where the decompressed bytes count.
    """

    limiter: RateLimiter | None
    client: str
    spent: int = 0
    status: RateLimitStatus | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that tell a client how many tokens it has left, and for how long, if any."""
        if self.status is None:
            return {}
        return {
            "RateLimit-Policy": f'"tokens";q={self.status.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"tokens";r={self.status.remaining};t={self.status.reset_seconds}',
        }

    async def spend(self, size: int) -> None:
        """Spend what a body of so many bytes costs and what has not been spent.

        Raises:
            RateLimitedError: the client has too few, the first time; then what is missing is owed.
        """
        tokens = tokens_of(size)
        if self.limiter is None or tokens <= self.spent:
            return
        more, owed = tokens - self.spent, self.spent > 0
        status = await asyncio.to_thread(self.limiter.spend, self.client, more, owed=owed)
        self.status = status
        if not status.admitted:
            raise RateLimitedError(status.limit, status.retry_after, self.headers)
        self.spent = tokens


def client_name(address: str) -> str:
    """Return the name of the client at an address.

    All addresses of an IPv6 network of 64 bits, the smallest that one client gets, have one name.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # of a Unix socket, or as a proxy wrote it
        return f"address:{address}"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return f"address:{ipaddress.ip_network((int(parsed), 64), strict=False)}"
        parsed = parsed.ipv4_mapped
    return f"address:{parsed}"

"""The one way to Redis: never waited for, never needed.

Redis holds nothing that cannot be computed again. Time-outs are short, a call that fails opens a
circuit breaker (Nygard, "Release It!", 2007), and from then on nobody asks until a probe in the
background has written and read again. So a Redis that is dead, paused or full costs one time-out,
and one that is back is used a second later.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.errors import SettingsError
from service.metrics import Metrics

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 0.1
_PROBE_SECONDS = 1.0
_PROBE_KEY = "longmatch:probe"
_PROBE_LIFE_SECONDS = 60


class RedisClient:
    """Connections to one Redis, and whether it can be used now."""

    def __init__(self, url: str, metrics: Metrics) -> None:
        """Connect, and keep looking whether Redis works.

        Args:
            url: redis://, rediss:// or unix://, with a password where there is one.
            metrics: where to count.

        Raises:
            SettingsError: the address is none.
        """
        try:
            self._client: Any = redis.Redis.from_url(
                url,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            # Not the address itself: it may hold a password.
            raise SettingsError("redis_url is no address of a Redis") from error
        self._metrics = metrics
        self._available = True
        self._closing = threading.Event()
        self._check()
        self._thread = threading.Thread(target=self._watch, name="redis-probe", daemon=True)
        self._thread.start()

    @property
    def available(self) -> bool:
        """Whether it worked when it was last used."""
        return self._available

    def call(self, work: Callable[[Any], T]) -> T | None:
        """Do something with the client of Redis; None when that cannot be done now.

        It blocks, at most for some time-outs. To be called from any thread.
        """
        if not self._available:
            return None
        try:
            return work(self._client)
        except (redis.RedisError, OSError) as error:
            self._metrics.redis_errors.inc()
            self._set(False, error)
            return None

    def close(self) -> None:
        """Stop looking, and close the connections."""
        self._closing.set()
        self._thread.join()
        self._client.close()

    def _watch(self) -> None:
        while not self._closing.wait(_PROBE_SECONDS):
            self._check()

    def _check(self) -> None:
        """Write and read: a full Redis answers a ping, too."""
        written = secrets.token_bytes(8)
        try:
            self._client.set(_PROBE_KEY, written, ex=_PROBE_LIFE_SECONDS)
            self._client.get(_PROBE_KEY)
        except (redis.RedisError, OSError) as error:
            self._set(False, error)
        else:
            self._set(True)

    def _set(self, available: bool, error: Exception | None = None) -> None:
        if available != self._available:
            # The kind of error only: its text may hold the address.
            state = "is used again" if available else f"is not used: {type(error).__name__}"
            _LOG.warning("Redis %s", state)
        self._available = available
        self._metrics.redis_up.set(int(available))

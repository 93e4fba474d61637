"""The Redis client of the service, behind a circuit breaker.

Redis holds nothing that cannot be computed again. Time-outs are short, and a call that fails opens
the circuit breaker (Nygard, "Release It!", 2007): Redis is not called again until a probe in the
background has written and read a value. So a Redis that is dead, paused or full costs one time-out,
and one that has recovered is used within a second.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from service.errors import SettingsError
from service.metrics import Metrics
from service.threads import Worker

_LOG = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 0.1
_PROBE_SECONDS = 1.0
_PROBE_KEY = "longmatch:probe"
_PROBE_LIFE_SECONDS = 60


class RedisClient:
    """Connections to one Redis.

    Attributes:
        available: whether the last call or probe succeeded.
    """

    def __init__(self, url: str, metrics: Metrics) -> None:
        """Connect, and start the probe.

        Args:
            url: redis://, rediss:// or unix://, with the password if there is one; it may have any
                character, but a percent sign is written %25.
            metrics: where to count.

        Raises:
            SettingsError: the URL is not one of a Redis.
        """
        # Here: most servers have no Redis, and need not load its client at each start.
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._errors = (redis.RedisError, OSError)
        place, credentials = _split_credentials(url)
        try:
            self._client: Any = redis.Redis.from_url(
                place,
                **credentials,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            # Without the URL itself: it may contain a password.
            raise SettingsError(
                "redis_url must be of the form redis://, rediss:// or unix://"
            ) from error
        self._metrics = metrics
        self.available = True
        self._worker = Worker("probes of Redis", self._probe)
        self._worker.start(rest=self._probe())

    def call(self, work: Callable[[Any], Any]) -> Any:
        """Call `work` with the redis-py client; return None if Redis is unavailable.

        It blocks for a few time-outs at most. Thread-safe.
        """
        if not self.available:
            return None
        try:
            return work(self._client)
        except self._errors as error:
            self._metrics.redis_errors.inc()
            self._set_available(False, error)
            return None

    def close(self) -> None:
        """Stop the probe and close the connections."""
        self._worker.close()
        self._client.close()

    def _probe(self) -> float:
        """Write and read a value, then rest: a full Redis still answers a ping."""
        written = secrets.token_bytes(8)
        try:
            self._client.set(_PROBE_KEY, written, ex=_PROBE_LIFE_SECONDS)
            self._client.get(_PROBE_KEY)
        except self._errors as error:
            self._set_available(False, error)
        else:
            self._set_available(True)
        return _PROBE_SECONDS

    def _set_available(self, available: bool, error: Exception | None = None) -> None:
        if available != self.available:
            # The type of the error only: its text may contain the URL.
            state = "is available again" if available else f"is unavailable: {type(error).__name__}"
            _LOG.warning("Redis %s", state)
        self.available = available
        self._metrics.redis_up.set(int(available))


def _split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Take user and password out of the URL of a host; they end at its last "@"."""
    scheme, separator, rest = url.partition("://")
    if scheme not in ("redis", "rediss"):
        return url, {}
    credentials, _, place = rest.rpartition("@")
    user, _, password = credentials.partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return f"{scheme}{separator}{place}", {name: value for name, value in given.items() if value}

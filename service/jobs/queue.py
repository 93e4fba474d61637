"""What says which job runs next: a huey queue in Redis, or in this process where there is none.

It holds ids of jobs and nothing else. Whatever it loses is put back from the job store, and
while Redis does not answer the queue of this process does its work.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from huey import Huey
from huey.exceptions import HueyException
from huey.registry import Message
from huey.serializer import Serializer
from huey.storage import MemoryStorage, RedisStorage
from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from service.errors import SettingsError

REDIS_TIMEOUT_SECONDS = 0.5
_AVOIDED_SECONDS = 2.0  # after a failure Redis is not asked for so long

_LOG = logging.getLogger(__name__)


class JobQueue:
    """Ids of jobs in the order in which they are to run; never raises for Redis."""

    def __init__(
        self,
        name: str,
        redis_url: str | None,
        run: Callable[[str], None],
        on_redis: Callable[[bool], object],
    ) -> None:
        """Open the queue.

        Args:
            name: of the queue in Redis; another data directory has another one.
            redis_url: None for the queue of this process alone.
            run: runs the job of an id; raises nothing.
            on_redis: told whether Redis answered, each time.

        Raises:
            SettingsError: the URL is none of Redis.
        """
        self._embedded = _Backend(Huey(name, storage_class=MemoryStorage, **_PLAIN), run)
        self._redis = None if redis_url is None else _Backend(_redis_huey(name, redis_url), run)
        self._on_redis = on_redis
        self._avoid_until = 0.0
        self.degraded = False

    def push(self, job_ids: Iterable[str]) -> None:
        """Say that jobs are to run."""
        for job_id in job_ids:
            if self._ask_redis(partial(_Backend.push, job_id=job_id)) is None:
                self._embedded.push(job_id)

    def run_next(self) -> bool:
        """Run the next job to its end; return whether there was one."""
        task = self._ask_redis(_Backend.take) or self._embedded.take()
        if task is None:
            return False
        task()
        return True

    def clear(self) -> None:
        """Forget what an earlier process left."""
        self._ask_redis(_Backend.clear)

    def close(self) -> None:
        """Close the connections to Redis."""
        if self._redis is not None:
            self._redis.close()

    def _ask_redis(self, ask: Callable[["_Backend"], Any]) -> Any:
        """Return what Redis answers; None when there is none, or when it fails."""
        if self._redis is None or time.monotonic() < self._avoid_until:
            return None
        try:
            answer = ask(self._redis)
        except (RedisError, OSError) as error:
            if not self.degraded:
                _LOG.warning("Redis fails, jobs go on without: %s", type(error).__name__)
            self._avoid_until = time.monotonic() + _AVOIDED_SECONDS
            self._note(working=False)
            return None
        if self.degraded:
            _LOG.warning("Redis answers again")
        self._note(working=True)
        return answer

    def _note(self, *, working: bool) -> None:
        self.degraded = not working
        self._on_redis(working)


class _Backend:
    """One huey queue whose only task is to run a job."""

    def __init__(self, huey: Huey, run: Callable[[str], None]) -> None:
        self._huey = huey
        self._task = huey.task(name="run_job")(run)

    def push(self, job_id: str) -> bool:
        self._task(job_id)
        return True

    def take(self) -> Callable[[], None] | None:
        while True:
            try:
                task = self._huey.dequeue()
            except (ValueError, HueyException):  # not written by us
                continue
            # Not `huey.execute`, which asks Redis for revoked tasks: it may be gone by now.
            return None if task is None else task.execute

    def clear(self) -> None:
        self._huey.storage.flush_queue()

    def close(self) -> None:
        self._huey.storage.pool.disconnect()


class _JSONSerializer(Serializer):  # type: ignore[misc]
    """Messages as JSON: huey's own are pickles, and whoever writes to Redis could run code here."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps({"name": data.name, "id": data.id, "args": data.args}).encode()

    def _deserialize(self, data: bytes) -> Message:
        match json.loads(data):
            case {"id": str(task_id), "name": str(name), "args": [str(job_id)]}:
                return Message(task_id, name, None, 0, 0, None, (job_id,), {}, None, None)
        raise ValueError("is no message of ours")


_PLAIN: dict[str, Any] = {"results": False, "serializer": _JSONSerializer()}


def _redis_huey(name: str, url: str) -> Huey:
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_timeout=REDIS_TIMEOUT_SECONDS,
            socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise SettingsError(
            "redis_url is not of the form redis://, rediss:// or unix://"
        ) from error
    return Huey(name, storage_class=RedisStorage, connection_pool=pool, blocking=False, **_PLAIN)

"""A real Redis, to be killed, paused, flushed and filled."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from service.metrics import Metrics
from service.redis_client import RedisClient
from tests.kit.process_fixtures import free_port
from tests.kit.programs import require_program
from tests.kit.waiting import TIMEOUT_S, wait_until


class RedisServer:
    """A Redis on a free port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = Redis.from_url(self.url, socket_timeout=TIMEOUT_S)
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Start it, empty, on its port."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen(
            [require_program("redis-server"), *options], cwd=self._folder, stdout=subprocess.DEVNULL
        )
        wait_until(self._answers, "Redis did not start")

    def _answers(self) -> bool:
        with suppress(RedisError):
            return bool(self.client.ping())
        return False

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it answer nothing; connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        self._process.send_signal(signal.SIGCONT)

    def flush(self) -> None:
        """Let it forget everything."""
        self.client.flushall()

    def fill(self) -> None:
        """Let it have no memory for another write."""
        self.client.config_set("maxmemory", 1)

    def make_room(self) -> None:
        """Let it have memory again."""
        self.client.config_set("maxmemory", 0)

    def close(self) -> None:
        """Leave nothing of it."""
        self.client.close()
        self.kill()


@pytest.fixture
def redis_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A Redis of the test's own; a busy machine may stop it for longer than the service waits."""
    monkeypatch.setattr("service.redis_client._TIMEOUT_SECONDS", 2.0)
    server = RedisServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[RedisClient]:
    """The client of the service, of that Redis."""
    opened = RedisClient(redis_server.url, Metrics())
    yield opened
    opened.close()

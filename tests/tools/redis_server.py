"""A real Redis, to be killed, paused, flushed and filled."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.tools.programs import require_program

PROGRAM = "redis-server"
START_SECONDS = 20


class RedisServer:
    """A Redis of one's own on a free port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = int(one.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = Redis.from_url(self.url, socket_timeout=5)
        self._folder = folder
        self._program = require_program(PROGRAM)
        self.start()

    def start(self) -> None:
        """Start it, empty, on its port.

        Raises:
            RuntimeError: it does not answer.
        """
        self._process = subprocess.Popen(
            [
                require_program(PROGRAM),
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                self.client.ping()
                return
            except RedisError:
                time.sleep(0.02)
        raise RuntimeError("Redis did not start")

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
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own."""
    server = RedisServer(tmp_path)
    yield server
    server.close()

"""A real Milvus for tests: Milvus Lite in this process, or the server of LONGMATCH_TEST_MILVUS."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from index.errors import VectorEngineError
from index.vectors.milvus.connection import MilvusAddress, MilvusConnection, parse_milvus_url
from index.vectors.milvus.engine import MilvusEngine, open_milvus
from tests.tools.process_fixtures import free_port
from tests.tools.waiting import TIMEOUT_S as START_SECONDS

MILVUS_SERVER = os.environ.get("LONGMATCH_TEST_MILVUS")  # its URL, where there is one


@pytest.fixture(scope="session")
def milvus_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a Milvus that all tests of this process share."""
    return MILVUS_SERVER or f"milvus://{tmp_path_factory.mktemp('milvus')}/lite.db"


@pytest.fixture(scope="session")
def milvus_address(milvus_url: str) -> Iterator[MilvusAddress]:
    """Its address. It is kept open: opening it for each test takes half a second."""
    address = parse_milvus_url(milvus_url)
    holder = open_milvus(address, Path("nowhere"), read_only=True)
    yield address
    holder.close()


def with_words(address: MilvusAddress) -> MilvusAddress:
    """Let a Milvus hold the words, too, if it can: a server of `make test-milvus` cannot."""
    both = replace(address, words=True)
    try:
        MilvusConnection(both).close()
    except VectorEngineError:
        return address
    return both


@pytest.fixture
def milvus_engine(milvus_address: MilvusAddress, tmp_path: Path) -> Iterator[MilvusEngine]:
    """What keeps the vectors of one data directory, dropped after the test."""
    engine = open_milvus(milvus_address, tmp_path, read_only=False)
    yield engine
    engine.drop_others([])
    engine.close()


class MilvusServer:
    """A Milvus Lite in a process of its own, which serves others as a Milvus server does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"milvus://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        place = ["--data-dir", str(self.folder), "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "milvus_lite", "server", *place],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        pytest.fail("the Milvus did not start")

    def signal(self, how: signal.Signals) -> None:
        """Send it a signal; return when it has stopped, if it is one to stop."""
        assert self._process is not None
        self._process.send_signal(how)
        if how is signal.SIGSTOP:  # another of its threads may answer until then
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def milvus_server(tmp_path: Path) -> Iterator[MilvusServer]:
    """A Milvus Lite in a process of its own."""
    server = MilvusServer(tmp_path / "served")
    server.start()
    yield server
    server.kill()

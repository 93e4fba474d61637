"""Search processes of the real server: they end with it, however it ends."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from index.directory.data_directory import STORE_FILE
from tests.kit.waiting import TIMEOUT_S, wait_until

RIVER = "Rivers carry water and stones to the sea. They flood in spring. " * 5
MUSIC = "A sonata has three movements. The second of them is slow. " * 5
NUMBER = 2


def parents() -> dict[int, int]:
    """Return the parent of each process that runs, not of those that only wait to be buried."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listed.stdout.splitlines())
    return {int(own): int(parent) for own, parent, state in rows if state[0] != "Z"}


def running(pids: list[int]) -> set[int]:
    return parents().keys() & set(pids)


def ready(server: Any) -> bool:
    return bool(server.metric("longmatch_search_processes") == NUMBER)


def start_searching(server: Any) -> list[int]:
    """Fill a server, and return its search processes when they are ready."""
    documents = [{"id": "river", "text": RIVER}, {"id": "music", "text": MUSIC}]
    assert server.request("POST", "/index", {"documents": documents})[0] == 200
    wait_until(lambda: ready(server))
    status, answer = server.request("POST", "/match", {"id": "river"})
    assert (status, answer["matches"][0]["id"]) == (200, "music")
    pids = [own for own, parent in parents().items() if parent == server.process.pid]
    assert len(pids) == NUMBER
    return pids


def test_no_process_outlives_a_killed_server(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint, search_processes=NUMBER) as server:
        pids = start_searching(server)
        server.stop(signal.SIGKILL)
        wait_until(lambda: not running(pids))
        assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_lets_requests_end(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, how: signal.Signals
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint, search_processes=NUMBER) as server:
        pids = start_searching(server)
        statuses = []

        def ask() -> None:
            statuses.append(server.request("POST", "/match", {"id": "river"})[0])

        for pid in pids:  # the search is under way until they go on
            os.kill(pid, signal.SIGSTOP)
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)
        for pid in [server.process.pid, *pids]:  # as a terminal or an init system does
            os.kill(pid, how)
        time.sleep(0.5)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        asking.join()
        assert statuses == [200]
        assert server.process.wait(TIMEOUT_S) == 0
        assert not running(pids)
        assert not (
            tmp_path / "data" / f"{STORE_FILE}-wal"
        ).exists()  # no process had it open any more
        log = server.log.read_text()
        assert "Traceback" not in log
        assert "search process" not in log

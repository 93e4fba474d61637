"""R3 with the real server as a process: it runs out of what the system gives, and recovers."""

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.kit.command import Run
from tests.kit.waiting import wait_until

RIVER = "Rivers carry water and stones to the sea. They flood in spring. " * 5
CONNECTIONS = 60
BOUND = 16  # file descriptors beyond those that the server has at rest


@contextmanager
def limited(pid: int, what: int, most: int) -> Iterator[None]:
    """Change a limit of a running process for as long as the block runs."""
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, what, before)


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def settled_open_files(pid: int) -> int:
    """Count the open files of a process when nothing of the last request is being closed."""
    count = open_files(pid)
    while True:
        time.sleep(0.5)
        before, count = count, open_files(pid)
        if count == before:
            return count


def connect(server: Any) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=120)


def documents(*names: str) -> dict[str, Any]:
    return {"documents": [{"id": name, "text": f"{name}. {RIVER}"} for name in names]}


def head_of_match(length: int) -> bytes:
    return (
        "POST /match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_without_file_descriptors_it_goes_on_with_those_it_has(
    serve: Callable[..., Any], longmatch: Run, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    body = json.dumps({"text": RIVER}).encode()
    with serve(data, tiny_checkpoint, threads=1) as server:
        assert server.request("POST", "/index", documents("first"))[0] == 200
        used = settled_open_files(server.process.pid)
        with ExitStack() as held:
            bound = limited(server.process.pid, resource.RLIMIT_NOFILE, used + BOUND)
            held.enter_context(bound)
            early = held.enter_context(connect(server))
            early.sendall(head_of_match(len(body)))
            wait_until(lambda: open_files(server.process.pid) > used)
            waiting = [held.enter_context(connect(server)) for _ in range(CONNECTIONS)]
            wait_until(lambda: open_files(server.process.pid) == used + BOUND)
            early.sendall(body)  # an accepted connection is served, or gets an error
            status = int(early.recv(4096).split()[1])
            assert status in (200, 500, 503)
            for connection in waiting:
                connection.close()
        wait_until(lambda: open_files(server.process.pid) <= used + 1)
        status, answer = server.request("GET", "/readyz")
        assert (status, answer["status"]) == (200, "ready")
        assert "out of system resource" in server.log.read_text()
        assert server.request("POST", "/index", documents("second"))[0] == 200
        status, answer = server.request("POST", "/match", {"text": RIVER})
        assert (status, {match["id"] for match in answer["matches"]}) == (200, {"first", "second"})
        assert server.stop() == 0
    answer = longmatch("doctor", data)
    assert answer.status == 0, answer.err

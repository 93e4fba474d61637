"""Clients that mean harm, against the real server: what they send and do not read costs nothing."""

import json
import re
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MIB = 2**20
CLOSE = "Connection: close"
# `longmatch` that disconnects clients who take nothing for some seconds.
HURRIED = """
from functools import partial
import service.process as process
process.SendLimits = partial(process.SendLimits, seconds=3.0, bytes_per_second=16384.0)
from service.cli.main import main
main()
"""


def connect(server: Any, receive_bytes: int = 0) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    one = socket.socket()
    if receive_bytes:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    one.settimeout(20)
    one.connect((host, int(port)))
    return one


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def read_all(one: socket.socket) -> bytes:
    """Receive until the server closes the connection."""
    return b"".join(iter(lambda: one.recv(MIB), b""))


def resident_mib(server: Any) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def send_all(one: socket.socket, size: int) -> None:
    """Send bytes until they are sent or the server closes the connection."""
    part = b"x" * (MIB // 4)
    try:
        for _ in range(size // len(part)):
            one.sendall(part)
    except (ConnectionError, TimeoutError):
        return


def test_no_header_of_a_client_on_this_machine_gives_it_another_rate(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    limit = {"rate_limit_tokens_per_minute": 10}
    with serve(tmp_path / "data", tiny_checkpoint, **limit) as server:
        statuses = []
        for number in range(12):
            with connect(server) as one:
                headers = [f"X-Forwarded-For: 10.0.0.{number}", f"X-API-Key: {number}"]
                one.sendall(head("GET", "/documents", *headers))
                statuses.append(one.recv(12)[-3:])
        assert statuses == [b"200"] * 10 + [b"429"] * 2


@pytest.mark.slow
def test_a_page_of_another_site_cannot_delete_by_dns_rebinding(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        documents = [{"id": "a", "text": "Ants dig."}]
        assert server.request("POST", "/index", {"documents": documents})[0] == 200
        with connect(server) as one:
            request = head("DELETE", "/documents/a", CLOSE)
            one.sendall(request.replace(b"localhost", b"evil.example"))
            answer = read_all(one)
        assert answer.startswith(b"HTTP/1.1 421 ")
        assert b"/problems/host-not-allowed" in answer
        assert server.request("GET", "/documents/a")[0] == 200


def fill(server: Any, megabytes: int) -> None:
    """Store so many megabytes, most of them metadata, which takes no encoding."""
    lines = [
        json.dumps({"id": str(number), "text": "Ants dig.", "metadata": {"filler": "x" * 62_500}})
        for number in range(16 * megabytes)
    ]
    with connect(server) as one:
        body = "\n".join(lines).encode()
        kind = "Content-Type: application/x-ndjson"
        one.sendall(head("POST", "/index", kind, f"Content-Length: {len(body)}") + body)
        assert b" 202 " in one.recv(65_536)
    deadline = time.monotonic() + 60
    while server.request("GET", "/readyz")[1]["documents"] < len(lines):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metric(server: Any, name: str) -> float:
    text = server.request("GET", "/metrics")[1].decode()
    (value,) = re.findall(rf"^{name} (.+)$", text, re.MULTILINE)
    return float(value)


def test_exports_that_nobody_reads_keep_no_place_and_no_memory_and_end(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    limits = {"max_active_requests": 8, "find_families": False}
    command = [sys.executable, "-c", HURRIED]
    with serve(tmp_path / "data", tiny_checkpoint, command=command, **limits) as server:
        fill(server, megabytes=8)
        with connect(server) as one:  # whose memory does not count
            one.sendall(head("GET", "/documents", "Accept: application/x-ndjson", CLOSE))
            assert read_all(one).endswith(b"\r\n0\r\n\r\n")
        before = resident_mib(server)
        clients = []
        for _ in range(24):
            one = connect(server, receive_bytes=4096)
            one.sendall(head("GET", "/documents", "Accept: application/x-ndjson"))
            assert one.recv(12) == b"HTTP/1.1 200"
            clients.append(one)
        assert server.request("POST", "/match", {"text": "Ants dig."})[0] == 200
        assert server.request("GET", "/readyz")[1]["status"] == "ready"
        assert resident_mib(server) - before < 60
        deadline = time.monotonic() + 80
        while metric(server, "longmatch_slow_clients_total") < len(clients):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for one in clients:
            one.close()


def test_bodies_that_nothing_reads_take_no_memory_and_no_time(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        before = resident_mib(server)
        targets = [
            ("POST", "/version", 405),
            ("POST", "//x", 404),
            ("POST", "/docs/static/x", 405),
            ("GET", "/livez", 200),
            ("POST", "/match", 415),
        ]
        clients = []
        for method, path, status in targets * 4:
            one = connect(server)
            kind = "Content-Type: application/x-ndjson"
            one.sendall(head(method, path, kind, f"Content-Length: {16 * MIB}"))
            started = time.monotonic()
            assert one.recv(65_536).startswith(f"HTTP/1.1 {status} ".encode())
            assert time.monotonic() - started < 2
            clients.append(one)
        for one in clients:
            send_all(one, 15 * MIB)
        assert resident_mib(server) - before < 50
        for one in clients:
            one.close()
        assert server.request("GET", "/livez")[0] == 200


@pytest.mark.slow
def test_a_body_under_way_at_shutdown_is_refused_without_a_traceback(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint, drain_seconds=1) as server:
        with connect(server) as one:
            kind = "Content-Type: application/json"
            one.sendall(head("POST", "/match", kind, "Content-Length: 1000") + b'{"text": ')
            while metric(server, "longmatch_queue_tokens") == 0:
                time.sleep(0.01)
            assert server.stop() == 0
            answer = read_all(one)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"/problems/shutting-down" in answer
        assert "Traceback" not in server.log.read_text()

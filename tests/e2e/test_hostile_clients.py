"""Clients that mean harm, against the real server: what they send and do not read costs nothing."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import TIMEOUT_S, wait_until

MIB = 2**20
CLOSE = "Connection: close"
# `longmatch` that disconnects clients who take nothing for some seconds.
HURRIED = """
from functools import partial
import service.process as process
process.limited_protocol = partial(process.limited_protocol, pause_seconds=3.0)
from service.cli.main import main
main()
"""


def connect(server: Any, receive_bytes: int = 0, address: str = "127.0.0.1") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(TIMEOUT_S)
    client.bind((address, 0))
    client.connect((host, int(port)))
    return client


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def read_all(client: socket.socket) -> bytes:
    """Receive until the server closes the connection."""
    return b"".join(iter(lambda: client.recv(MIB), b""))


def resident_mib(server: Any) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def read_answer(client: socket.socket) -> bytes:
    """Receive the head of a response, also where the server then cuts the connection."""
    try:
        return client.recv(65_536)
    except ConnectionError:
        return b""


def send_all(client: socket.socket, size: int) -> None:
    """Send bytes until they are sent or the server closes the connection."""
    part = b"x" * (MIB // 4)
    try:
        for _ in range(size // len(part)):
            client.sendall(part)
    except (ConnectionError, TimeoutError):
        return


def test_no_header_of_a_local_client_gives_it_another_rate(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    limit = {"rate_limit_tokens_per_minute": 10}
    with serve(tmp_path / "data", tiny_checkpoint, **limit) as server:
        statuses = []
        for number in range(12):
            with connect(server) as client:
                headers = [f"X-Forwarded-For: 10.0.0.{number}", f"X-API-Key: {number}"]
                client.sendall(head("GET", "/documents", *headers))
                statuses.append(client.recv(12)[-3:])
        assert statuses == [b"200"] * 10 + [b"429"] * 2


def fill(server: Any, megabytes: int) -> None:
    """Store so many megabytes, most of them metadata, which takes no encoding."""
    lines = [
        json.dumps({"id": str(number), "text": "Ants dig.", "metadata": {"filler": "x" * 62_500}})
        for number in range(16 * megabytes)
    ]
    with connect(server) as client:
        body = "\n".join(lines).encode()
        kind = "Content-Type: application/x-ndjson"
        client.sendall(head("POST", "/index", kind, f"Content-Length: {len(body)}") + body)
        assert b" 202 " in client.recv(65_536)
    wait_until(lambda: server.request("GET", "/readyz")[1]["documents"] == len(lines))


def test_exports_that_nobody_reads_take_no_memory_and_end(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    limits = {"max_active_requests": 8, "find_families": False}
    command = [sys.executable, "-c", HURRIED]
    with serve(tmp_path / "data", tiny_checkpoint, command=command, **limits) as server:
        fill(server, megabytes=8)
        with connect(server) as client:  # whose memory does not count
            client.sendall(head("GET", "/documents", "Accept: application/x-ndjson", CLOSE))
            assert read_all(client).endswith(b"\r\n0\r\n\r\n")
        before = resident_mib(server)
        clients = []
        for _ in range(24):
            client = connect(server, receive_bytes=4096)
            client.sendall(head("GET", "/documents", "Accept: application/x-ndjson"))
            assert client.recv(12) == b"HTTP/1.1 200"
            clients.append(client)
        assert server.request("POST", "/match", {"text": "Ants dig."})[0] == 200
        assert server.request("GET", "/readyz")[1]["status"] == "ready"
        assert resident_mib(server) - before < 60
        wait_until(lambda: server.metric("longmatch_slow_clients_total") == len(clients))
        for client in clients:
            client.close()


def test_bodies_that_nothing_reads_take_no_memory_and_no_time(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        before = resident_mib(server)
        targets = [
            *(("POST", "/version", 405), ("POST", "//x", 404), ("POST", "/docs/static/x", 405)),
            *(("GET", "/livez", 200), ("POST", "/match", 415)),
        ]
        clients = []
        for method, path, status in targets * 4:
            client = connect(server)
            kind = "Content-Type: application/x-ndjson"
            client.sendall(head(method, path, kind, f"Content-Length: {16 * MIB}"))
            assert client.recv(65_536).startswith(f"HTTP/1.1 {status} ".encode())
            clients.append(client)
        for client in clients:
            send_all(client, 15 * MIB)
        assert resident_mib(server) - before < 50
        for client in clients:
            client.close()
        assert server.request("GET", "/livez")[0] == 200


def test_bodies_that_are_announced_take_bounded_memory(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    size, part = 8 * MIB, b"x " * (MIB // 8)
    text = head("POST", "/text", "Content-Type: text/plain", f"Content-Length: {size}", CLOSE)
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        before = resident_mib(server)
        clients = [connect(server) for _ in range(200)]
        for client in clients:
            client.sendall(text)
        sending, most = clients[:60], 0.0
        for _ in range(size // len(part)):  # of all of them at a time
            for client in list(sending):
                try:
                    client.sendall(part)
                except ConnectionError:
                    sending.remove(client)
            most = max(most, resident_mib(server))
        assert server.request("GET", "/readyz")[1]["status"] == "ready"
        answers = [read_answer(client) for client in clients[:60]]
        assert {answer[9:12] for answer in answers} == {b"422", b"503"}
        refused = [answer.lower() for answer in answers if answer[9:12] == b"503"]
        assert all(b"retry-after: 1" in answer for answer in refused)
        assert most - before < 200
        for client in clients:
            client.close()
        with connect(server) as client:  # all places were given back
            client.sendall(text)
            send_all(client, size)
            assert read_answer(client)[9:12] == b"422"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second loopback address")
@pytest.mark.parametrize(
    ("path", "kind"), [("/text", "text/plain"), ("/index", "application/json")]
)
def test_a_client_that_takes_all_it_gets_leaves_room_to_another(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, path: str, kind: str
) -> None:
    text = json.dumps({"documents": [{"id": "ants", "text": "Ants dig. " * 400}]}).encode()
    whole = head("POST", path, f"Content-Type: {kind}", f"Content-Length: {len(text)}") + text
    limits = {"max_active_requests": 16, "max_queue_tokens": 8 * len(text) // 4}
    with serve(tmp_path / "data", tiny_checkpoint, **limits) as server:
        held = [connect(server) for _ in range(40)]
        for client in held:
            client.sendall(whole[:-1])
        wait_until(lambda: server.metric("longmatch_admission_rejected_total") >= 40 - 8)
        with connect(server, address="127.0.0.2") as client:
            client.sendall(whole)
            assert client.recv(65_536)[9:12] == b"200"
        for client in held:
            client.close()


@pytest.mark.slow
def test_a_body_sent_during_shutdown_is_refused(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint, drain_seconds=1) as server:
        with connect(server) as client:
            kind = "Content-Type: application/json"
            client.sendall(head("POST", "/match", kind, "Content-Length: 1000") + b'{"text": ')
            wait_until(lambda: server.metric("longmatch_queue_tokens") > 0)
            assert server.stop() == 0
            answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"/problems/shutting-down" in answer
        assert "Traceback" not in server.log.read_text()

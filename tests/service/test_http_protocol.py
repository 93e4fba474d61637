"""The protocol: clients that stop sending or reading are disconnected."""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from service import http_protocol
from service.http_protocol import HEAD_SECONDS, TimedH11Protocol, limited_protocol
from tests.kit.waiting import wait_in_loop

MIB = 2**20
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test puts forward: its limits are then long ones."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


async def skip(seconds: float) -> None:
    """Let so many seconds pass at once, and the timers that they end."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skipped += seconds
    await asyncio.sleep(0.05)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Read nothing; answer 503, or after a long time or with 8 MiB where the path says so."""
    if scope["path"] == "/slow":
        await skip(3 * HEAD_SECONDS)
    if scope["path"] == "/large":
        headers = [(b"content-length", b"%d" % (8 * MIB))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(8):
            await send({"type": "http.response.body", "body": bytes(MIB), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


async def answer_to(port: int, sent: bytes) -> bytes:
    """Return what the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = b""
    try:
        async with asyncio.timeout(120):
            answer = await reader.read()
    except ConnectionResetError:
        pass
    writer.close()
    return answer


def with_server(
    work: Callable[[int], Awaitable[Any]], protocol: type[TimedH11Protocol] | None = None
) -> Any:
    async def run() -> Any:
        config = uvicorn.Config(
            application, port=0, http=protocol or limited_protocol(lambda: None), lifespan="off",
            log_level="critical", timeout_keep_alive=3,
        )  # fmt: skip
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            return await work(port)
        finally:
            server.should_exit = True
            await serving

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(run())


@pytest.mark.parametrize(
    "sent",
    [b"", b"PO", b"POST / HTTP/1.1\r\nHost: a\r\n"],
    ids=["silent", "first bytes", "half a head"],
)
def test_a_client_that_stops_sending_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)
    started = time.monotonic()
    assert with_server(lambda port: answer_to(port, sent)) == b""
    assert 0.2 < time.monotonic() - started < 60


def test_a_client_that_waits_for_a_response_is_not_disconnected() -> None:
    head = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert with_server(lambda port: answer_to(port, head)).endswith(b"no")


@pytest.mark.parametrize(
    "sent",
    [
        *(b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 70_000),
        b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=["no HTTP", "no host", "long", "bad chunk"],
)
def test_what_is_not_http_is_answered_with_a_problem(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = with_server(lambda port: answer_to(port, sent))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"content-type: application/problem+json" in head
    problem = json.loads(body)
    assert problem["type"] == "/problems/malformed-request"
    assert problem["request_id"].encode() in head
    assert "Traceback" not in caplog.text


def test_nonsense_after_a_response_closes_the_connection() -> None:
    sent = b"POST /large HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def work(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        first = await reader.readexactly(15)
        writer.write(b"nonsense\r\n")
        try:
            while await asyncio.wait_for(reader.read(MIB), 120):
                pass
        except ConnectionResetError:
            pass
        writer.close()
        return first

    assert with_server(work) == b"HTTP/1.1 200 OK"


def test_a_refused_body_is_read_and_the_connection_goes_on() -> None:
    async def twice(port: int) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = []
        for _ in range(2):
            writer.write(HEAD + b"12345")
            answers.append(await reader.readuntil(b"no"))
        writer.close()
        return answers

    for answer in with_server(twice):
        assert answer.startswith(b"HTTP/1.1 503")


class Reader:
    """A client that asks for 8 MiB and takes them as the test says."""

    def __init__(self, port: int) -> None:
        self.taken = 0
        self._port = port
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self._socket.setblocking(False)

    async def ask(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        head = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        await loop.sock_sendall(self._socket, head)

    async def take(self, size: int) -> bool:
        """Take so many bytes; return whether the connection gave them, or close it."""
        loop = asyncio.get_running_loop()
        wanted = self.taken + size
        try:
            while self.taken < wanted:
                got = await loop.sock_recv(self._socket, 65_536)
                if not got:
                    break
                self.taken += len(got)
            else:
                return True
        except ConnectionError:
            pass
        self._socket.close()
        return False

    async def take_all(self) -> bool:
        """Take the rest; return whether the response was whole."""
        while await self.take(1):
            pass
        return self.taken > 8 * MIB


def counting(**changed: Any) -> tuple[type[TimedH11Protocol], list[None]]:
    """Return a protocol with long limits but for those given, and the clients that it ends."""
    slow: list[None] = []
    limits = {"bytes_per_second": 1.0, "unsent_bytes": 2**30, **changed}
    return limited_protocol(lambda: slow.append(None), **limits), slow


def test_a_client_that_takes_nothing_is_disconnected() -> None:
    protocol, slow = counting()

    async def work(port: int) -> bool:
        reader = Reader(port)
        await reader.ask()
        await wait_in_loop(lambda: protocol.waiting)
        await skip(59)
        assert slow == []
        await skip(2)
        return await reader.take_all()

    assert not with_server(work, protocol)
    assert len(slow) == 1


def test_a_client_that_takes_too_little_is_disconnected() -> None:
    protocol, slow = counting(pause_seconds=0.5, bytes_per_second=100 * MIB)

    async def work(port: int) -> int:
        reader = Reader(port)
        await reader.ask()
        while await reader.take(65_536):
            await asyncio.sleep(0.1)
        return reader.taken

    assert 0 < with_server(work, protocol) < 8 * MIB
    assert len(slow) == 1


def test_a_client_that_takes_enough_may_pause() -> None:
    protocol, slow = counting(bytes_per_second=MIB / 60)

    async def work(port: int) -> bool:
        reader = Reader(port)
        await reader.ask()
        await wait_in_loop(lambda: protocol.waiting)
        for _ in range(4):
            await skip(35)
            assert await reader.take(MIB)
        return await reader.take_all()

    assert with_server(work, protocol)
    assert slow == []


def test_over_the_unsent_limit_the_slowest_is_disconnected() -> None:
    protocol, slow = counting(unsent_bytes=2 * MIB)

    async def work(port: int) -> list[bool]:
        readers = [Reader(port) for _ in range(3)]
        for reader in readers:
            await reader.ask()
            if reader is readers[0]:
                await wait_in_loop(lambda: protocol.waiting)
                await skip(5)
        await wait_in_loop(lambda: slow)
        return [await reader.take_all() for reader in readers]

    whole = with_server(work, protocol)
    assert whole[0] is False
    assert sum(whole) == 3 - len(slow)
    assert whole[-1]

"""The process: memory is returned, and stalled connections are closed."""

import asyncio
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from service import process as http_protocol
from service.process import TimedH11Protocol, cap_malloc_threshold

GLIBC = platform.libc_ver()[0] == "glibc"
# Frees a block of 24 MiB, which raises glibc's own bound, then keeps a small object behind each of
# two hundred blocks of 5 MiB: from a heap these would leave holes, mapped ones are gone when freed.
HOLES = """
import ctypes
from service.process import cap_malloc_threshold
if {capped}: cap_malloc_threshold()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def filled(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block
libc.free(filled(24 * 2**20))
blocks = [(filled(5 * 2**20), filled(64)) for _ in range(40)]
for large, _ in blocks[:-1]:
    libc.free(large)
print(next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmRSS")))
"""


def resident_mib(*, capped: bool) -> float:
    result = subprocess.run(
        [sys.executable, "-c", HOLES.format(capped=capped)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(result.stdout) / 1024


def test_there_is_something_to_tell_on_glibc_alone() -> None:
    assert cap_malloc_threshold() is GLIBC


def test_large_blocks_are_given_back() -> None:
    if sys.platform == "linux" and GLIBC:
        assert resident_mib(capped=True) < resident_mib(capped=False) - 100


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Read nothing; answer 503, or after half a second where the path says so."""
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


async def seconds_until_closed(port: int, sent: bytes) -> tuple[float, bytes]:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = loop.time()
    writer.write(sent)
    answer = b""
    try:
        async with asyncio.timeout(10):
            answer = await reader.read()
    except ConnectionResetError:
        pass
    writer.close()
    return loop.time() - started, answer


def with_server(work: Callable[[int], Any]) -> Any:
    async def run() -> Any:
        config = uvicorn.Config(
            application, port=0, http=TimedH11Protocol, lifespan="off", log_level="critical",
            timeout_keep_alive=3,
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

    return asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [b"", b"PO", b"POST / HTTP/1.1\r\nHost: a\r\n"],
    ids=["silent", "first bytes", "half a head"],
)
def test_a_client_that_stops_sending_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)
    seconds, _ = with_server(lambda port: seconds_until_closed(port, sent))
    assert 0.2 < seconds < 2.5


def test_a_client_that_waits_for_a_response_is_not_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)
    head = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    seconds, answer = with_server(lambda port: seconds_until_closed(port, head))
    assert seconds >= 0.6
    assert answer.endswith(b"no")


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

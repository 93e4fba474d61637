"""Clients that do not wait for one another: requests at given moments, over plain sockets.

An HTTP library would take more of the cores than the server's refusals do, and what is measured is
the server.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NO_ANSWER = 0  # the "status" of a request whose connection broke
_ANSWER_SECONDS = 120
_SLOW_BODY_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: when it is sent, in seconds from the start, its words and its text."""

    moment: float
    words: int
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        words: of the document.
        status: or `NO_ANSWER`.
        seconds: until the head of a refusal, or the whole of an answer, was read.
        tokens: that the server says it read.
        retry_after: seconds that a refusal asks to wait.
        stages: milliseconds of each stage, as the server says.
    """

    words: int
    status: int
    seconds: float
    tokens: int = 0
    retry_after: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)


async def send_all(port: int, plan: Sequence[Asked]) -> list[Answer]:
    """Send each request at its moment, whatever came of those before it."""
    began = time.perf_counter()
    tasks = []
    for asked in plan:
        await asyncio.sleep(max(0.0, began + asked.moment - time.perf_counter()))
        tasks.append(asyncio.create_task(_send(port, asked)))
    return list(await asyncio.gather(*tasks))


async def hold_open(port: int, slow: int, half_open: int, seconds: float) -> int:
    """Keep slow and half-open connections for so many seconds; return how many were closed."""
    tasks = [_trickle(port, seconds) for _ in range(slow)]
    tasks += [_stay_silent(port, seconds) for _ in range(half_open)]
    return sum(await asyncio.gather(*tasks))


async def _send(port: int, asked: Asked) -> Answer:
    body = json.dumps({"text": asked.text}).encode()
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            writer.write(_head(len(body)) + body)
            status, headers = await _read_head(reader)
            answered = time.perf_counter() - started
            content = await reader.readexactly(int(headers["content-length"]))
            writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, KeyError, ValueError):
        return Answer(asked.words, NO_ANSWER, time.perf_counter() - started)
    if status == 200:
        told = json.loads(content)
        seconds, tokens = time.perf_counter() - started, told["receipt"]["tokens_read"]
        return Answer(asked.words, status, seconds, tokens, stages=told["timings"])
    return Answer(asked.words, status, answered, retry_after=int(headers.get("retry-after", "0")))


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


async def _trickle(port: int, seconds: float) -> bool:
    """Announce a book and send a byte a second; return whether the server ended it."""
    end = time.monotonic() + seconds
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_head(_SLOW_BODY_BYTES))
        while time.monotonic() < end and not reader.at_eof():
            writer.write(b" ")
            await writer.drain()
            await _wait_for_end(reader, 1.0)
    except OSError:
        return True
    ended = reader.at_eof()
    writer.close()
    return ended


async def _stay_silent(port: int, seconds: float) -> bool:
    """Open a connection and send nothing; return whether the server ended it."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await _wait_for_end(reader, seconds)
    except OSError:
        return True
    ended = reader.at_eof()
    writer.close()
    return ended


async def _wait_for_end(reader: asyncio.StreamReader, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await reader.read()
    except TimeoutError:
        return


def _head(length: int) -> bytes:
    return (
        "POST /match HTTP/1.1\r\nHost: longmatch\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()

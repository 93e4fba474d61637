"""The load generator: closed loops over kept connections, and open loops over plain sockets.

In a closed loop a client sends its next request when it has the answer to the last one; in an open
loop requests are sent at scheduled times, whatever the answers do, so that a slow server is not
spared. Clients share the cores with the server that is measured: bodies are prepared before the
clock starts, answers are parsed after it, and the delays and the CPU time of an open loop are
recorded. `docs/results/load-generators.md` says why this is not locust or k6.
"""

import asyncio
import http.client
import json
import math
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.common import percentiles
from index.document import Document

FEWEST_WORDS, MOST_WORDS = 50, 20_000  # of a text
PIECE_WORDS = (8, 25)  # less than a sentence block holds
NO_ANSWER = 0  # the "status" of a request whose connection broke
TIMEOUT_SECONDS = 600
_OPEN_LOOP_TIMEOUT_SECONDS = 120
_SLOW_BODY_BYTES = 100_000
_HEADERS = {"Content-Type": "application/json"}


class DistinctTexts:
    """Texts pieced together out of a corpus, in pieces shorter than a sentence block.

    The server caches the vectors of sentence blocks. Texts cut from one small corpus again and
    again would soon be served from the cache and cost almost nothing, unlike real documents,
    which differ.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.words = re.findall(r"\S+\s*", "".join(f"{d.text}\n\n" for d in documents))
        while len(self.words) < PIECE_WORDS[1]:
            self.words *= 2

    def sample(self, chance: random.Random) -> tuple[int, str]:
        """Sample a log-uniform number of words, and a text of that length."""
        count = round(math.exp(chance.uniform(math.log(FEWEST_WORDS), math.log(MOST_WORDS))))
        pieces: list[str] = []
        while len(pieces) < count:
            length = min(chance.randint(*PIECE_WORDS), count - len(pieces))
            start = chance.randrange(len(self.words) - length + 1)
            pieces += self.words[start : start + length]
        return count, "".join(pieces)


@dataclass(frozen=True, slots=True)
class Request:
    """A body of `POST /match` and its words; an open loop sends it `moment` seconds in."""

    words: int
    body: bytes
    moment: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        words: of the document.
        status: or `NO_ANSWER`.
        seconds: until the answer was read; until its head was read, of a rejection in an open loop.
        retry_after: seconds to wait, from a rejection.
        content: of an answer with status 200.
    """

    words: int
    status: int
    seconds: float
    retry_after: int = 0
    content: bytes = b""

    @property
    def tokens(self) -> int:
        """Tokens read, as the server reports them."""
        return int(json.loads(self.content)["receipt"]["tokens_read"]) if self.content else 0


def match_request(words: int, text: str, moment: float = 0.0) -> Request:
    """Return the request that matches a text."""
    return Request(words, json.dumps({"text": text}).encode(), moment)


def closed_loop(
    port: int, clients: Sequence[Iterator[Request]], seconds: float, *, patient: bool = False
) -> list[Answer]:
    """Let each client send its requests for so long, and return all answers.

    Args:
        port: of the server.
        clients: the requests of each.
        seconds: after which no request is sent.
        patient: whether a rejected client waits as long as Retry-After says.
    """
    deadline = time.perf_counter() + seconds
    with ThreadPoolExecutor(len(clients)) as pool:
        working = [pool.submit(_client, port, some, deadline, patient) for some in clients]
        return [answer for work in working for answer in work.result()]


def _client(port: int, requests: Iterator[Request], deadline: float, patient: bool) -> list[Answer]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    answers = []
    while time.perf_counter() < deadline and (request := next(requests, None)) is not None:
        answer = _exchange(connection, request)
        answers.append(answer)
        if patient and answer.retry_after:
            connection.close()  # the server closes idle connections
            time.sleep(max(0.0, min(answer.retry_after, deadline - time.perf_counter())))
    connection.close()
    return answers


def _exchange(connection: http.client.HTTPConnection, request: Request) -> Answer:
    started = time.perf_counter()
    try:
        connection.request("POST", "/match", request.body, _HEADERS)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return Answer(request.words, NO_ANSWER, time.perf_counter() - started)
    seconds = time.perf_counter() - started
    if response.status == http.HTTPStatus.OK:
        return Answer(request.words, response.status, seconds, content=content)
    retry_after = int(response.getheader("Retry-After", "0"))
    return Answer(request.words, response.status, seconds, retry_after)


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of an open loop.

    Attributes:
        answers: in the order of the requests.
        late: for each request, seconds between its scheduled and actual sending: the delay caused
            by the clients.
        processor_seconds: CPU time of the clients.
    """

    answers: list[Answer]
    late: list[float]
    processor_seconds: float


async def open_loop(port: int, requests: Sequence[Request]) -> Sent:
    """Send each request at its scheduled time, independent of earlier answers."""
    used = _processor_seconds()
    began = time.perf_counter()
    tasks, late = [], []
    for request in requests:
        await asyncio.sleep(max(0.0, began + request.moment - time.perf_counter()))
        late.append(time.perf_counter() - began - request.moment)
        tasks.append(asyncio.create_task(_send(port, request)))
    answers = list(await asyncio.gather(*tasks))
    return Sent(answers, late, _processor_seconds() - used)


async def hold_open(port: int, slow: int, half_open: int, seconds: float) -> int:
    """Keep connections open that send a byte a second or nothing; return how many were closed."""
    tasks = [_hold(port, seconds, sends=number < slow) for number in range(slow + half_open)]
    return sum(await asyncio.gather(*tasks))


def summarise(answers: Sequence[Answer], classes: Mapping[str, Sequence[Answer]]) -> dict[str, Any]:
    """Count answers by status, and give percentiles of the seconds of each class."""
    statuses = Counter(str(answer.status or "no answer") for answer in answers)
    return {
        "statuses": dict(sorted(statuses.items())),
        "latency_seconds": {
            name: latency([answer.seconds for answer in some]) for name, some in classes.items()
        },
    }


def latency(seconds: Sequence[float]) -> dict[str, float | int]:
    """Return the number of values and their percentiles, where there are any."""
    return {"answers": len(seconds), **(percentiles(seconds) if seconds else {})}


class _Connection(asyncio.Protocol):
    """One request and its answer on a connection of its own.

    An HTTP library would use more CPU than the rejections of the server do.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._received = bytearray()
        self._head_end = -1
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.head_came = 0.0
        self.status = NO_ANSWER
        self.headers: dict[str, str] = {}
        self.content = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.writelines((_head(len(self._body)), self._body))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._head_end < 0:
            self._head_end = self._received.find(b"\r\n\r\n")
            if self._head_end < 0:
                return
            self.head_came = time.perf_counter()
            self._read_head(bytes(self._received[: self._head_end]).decode("latin-1"))
        begins = self._head_end + 4
        length = int(self.headers.get("content-length", "0"))
        if len(self._received) - begins >= length:
            self.content = bytes(self._received[begins : begins + length])
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.status = NO_ANSWER
            self._end()

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self.status = int(first.split()[1])

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self._transport is not None:
            self._transport.close()


async def _send(port: int, request: Request) -> Answer:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_OPEN_LOOP_TIMEOUT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(request.body), "127.0.0.1", port
            )
            await connection.ended
    except (OSError, TimeoutError):
        return Answer(request.words, NO_ANSWER, time.perf_counter() - started)
    if connection.status == 200:
        seconds = time.perf_counter() - started
        return Answer(request.words, 200, seconds, content=connection.content)
    retry_after = int(connection.headers.get("retry-after", "0"))
    seconds = (connection.head_came or time.perf_counter()) - started
    return Answer(request.words, connection.status, seconds, retry_after)


async def _hold(port: int, seconds: float, *, sends: bool) -> bool:
    """Announce a long body and send a byte a second, or say nothing; return whether it ended."""
    end = time.monotonic() + seconds
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if sends:
            writer.write(_head(_SLOW_BODY_BYTES))
        while time.monotonic() < end and not reader.at_eof():
            if sends:
                writer.write(b" ")
                await writer.drain()
            await _wait_for_end(reader, min(1.0, seconds))
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
        "POST /match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

"""Clients that do not wait for one another: requests at given moments, over plain sockets.

An HTTP library would take more of the cores than the server's refusals do, and what is measured is
the server. So bodies are made before the clock runs, an answer is read by a few string operations,
and what clients cost and how late they were is told beside the results.
"""

import asyncio
import json
import random
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.server.load import TextSource

PIECE_WORDS = (8, 25)  # less than a sentence block holds


class DistinctTexts(TextSource):
    """Texts pieced together out of a corpus, in pieces shorter than a sentence block.

    A server remembers the vectors of sentence blocks. Texts that are cut out of one small corpus
    again and again would soon be remembered whole, and cost next to nothing: their server could
    not be drowned by anything like real documents, which differ.
    """

    def draw(self, chance: random.Random) -> tuple[int, str]:
        """Draw a number of words, log-uniform, and a text of so many."""
        count = self.draw_length(chance)
        pieces: list[str] = []
        while len(pieces) < count:
            length = min(chance.randint(*PIECE_WORDS), count - len(pieces))
            start = chance.randrange(len(self.words) - length + 1)
            pieces += self.words[start : start + length]
        return count, "".join(pieces)


NO_ANSWER = 0  # the "status" of a request whose connection broke
_ANSWER_SECONDS = 120
_SLOW_BODY_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: when it is sent, in seconds from the start, its words and its body."""

    moment: float
    words: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        words: of the document.
        status: or `NO_ANSWER`.
        seconds: from the first byte sent until the head of a refusal, or the whole of an answer,
            was read.
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


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a plan.

    Attributes:
        answers: in the order of the plan.
        late: for each request, the seconds between its moment and its sending: the delay that is
            the clients' own.
        processor_seconds: that the clients took.
    """

    answers: list[Answer]
    late: list[float]
    processor_seconds: float


def match_body(text: str) -> bytes:
    """Return the body of a match of a text."""
    return json.dumps({"text": text}).encode()


async def send_all(port: int, plan: Sequence[Asked]) -> Sent:
    """Send each request at its moment, whatever came of those before it."""
    used = _processor_seconds()
    began = time.perf_counter()
    tasks, late = [], []
    for asked in plan:
        await asyncio.sleep(max(0.0, began + asked.moment - time.perf_counter()))
        late.append(time.perf_counter() - began - asked.moment)
        tasks.append(asyncio.create_task(_send(port, asked)))
    answers = list(await asyncio.gather(*tasks))
    return Sent(answers, late, _processor_seconds() - used)


async def hold_open(port: int, slow: int, half_open: int, seconds: float) -> int:
    """Keep slow and half-open connections for so many seconds; return how many were closed."""
    tasks = [_trickle(port, seconds) for _ in range(slow)]
    tasks += [_stay_silent(port, seconds) for _ in range(half_open)]
    return sum(await asyncio.gather(*tasks))


class _Exchange(asyncio.Protocol):
    """One request and its answer on a connection of their own."""

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


async def _send(port: int, asked: Asked) -> Answer:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, exchange = await asyncio.get_running_loop().create_connection(
                lambda: _Exchange(asked.body), "127.0.0.1", port
            )
            await exchange.ended
    except (OSError, TimeoutError):
        return Answer(asked.words, NO_ANSWER, time.perf_counter() - started)
    if exchange.status == 200:
        seconds = time.perf_counter() - started
        told = json.loads(exchange.content)
        tokens = told["receipt"]["tokens_read"]
        return Answer(asked.words, 200, seconds, tokens, stages=told["timings"])
    retry_after = int(exchange.headers.get("retry-after", "0"))
    seconds = (exchange.head_came or time.perf_counter()) - started
    return Answer(asked.words, exchange.status, seconds, retry_after=retry_after)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


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

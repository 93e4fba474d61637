"""An open-loop client: requests at scheduled times, over plain sockets.

An HTTP library would use more CPU than the server's rejections do, and the server is what is
measured. Bodies are therefore prepared before the clock starts, responses are parsed with a few
string operations, and the CPU time and delays of the clients are recorded with the results.
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

    The server caches the vectors of sentence blocks. Texts cut from one small corpus again and
    again would soon be served from the cache and cost almost nothing, unlike real documents,
    which differ.
    """

    def sample(self, chance: random.Random) -> tuple[int, str]:
        """Sample a log-uniform number of words, and a text of that length."""
        count = self.sample_length(chance)
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
class PlannedRequest:
    """A request: time of sending in seconds from the start, number of words, and body."""

    moment: float
    words: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request.

    Attributes:
        words: of the document.
        status: or `NO_ANSWER`.
        seconds: from the first byte sent until the head of a rejection, or the whole of a response,
            was read.
        tokens: number of tokens read, as reported by the server.
        retry_after: seconds to wait, from a rejection.
        stages: milliseconds of each stage, as reported by the server.
    """

    words: int
    status: int
    seconds: float
    tokens: int = 0
    retry_after: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a plan.

    Attributes:
        answers: in the order of the plan.
        late: for each request, seconds between its scheduled and actual sending: the delay caused
            by the clients.
        processor_seconds: CPU time of the clients.
    """

    answers: list[Answer]
    late: list[float]
    processor_seconds: float


def match_body(text: str) -> bytes:
    """Return the body of a match of a text."""
    return json.dumps({"text": text}).encode()


async def send_all(port: int, plan: Sequence[PlannedRequest]) -> Sent:
    """Send each request at its scheduled time, independent of earlier responses."""
    used = _processor_seconds()
    began = time.perf_counter()
    tasks, late = [], []
    for request in plan:
        await asyncio.sleep(max(0.0, began + request.moment - time.perf_counter()))
        late.append(time.perf_counter() - began - request.moment)
        tasks.append(asyncio.create_task(_send(port, request)))
    answers = list(await asyncio.gather(*tasks))
    return Sent(answers, late, _processor_seconds() - used)


async def hold_open(port: int, slow: int, half_open: int, seconds: float) -> int:
    """Keep slow and half-open connections open for the given time; return how many were closed."""
    tasks = [_trickle(port, seconds) for _ in range(slow)]
    tasks += [_stay_silent(port, seconds) for _ in range(half_open)]
    return sum(await asyncio.gather(*tasks))


class _Exchange(asyncio.Protocol):
    """One request and its response on a separate connection."""

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


async def _send(port: int, request: PlannedRequest) -> Answer:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, exchange = await asyncio.get_running_loop().create_connection(
                lambda: _Exchange(request.body), "127.0.0.1", port
            )
            await exchange.ended
    except (OSError, TimeoutError):
        return Answer(request.words, NO_ANSWER, time.perf_counter() - started)
    if exchange.status == 200:
        seconds = time.perf_counter() - started
        content = json.loads(exchange.content)
        tokens = content["receipt"]["tokens_read"]
        return Answer(request.words, 200, seconds, tokens, stages=content["timings"])
    retry_after = int(exchange.headers.get("retry-after", "0"))
    seconds = (exchange.head_came or time.perf_counter()) - started
    return Answer(request.words, exchange.status, seconds, retry_after=retry_after)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _trickle(port: int, seconds: float) -> bool:
    """Announce a long body and send a byte per second; return whether the server closed it."""
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
    """Open a connection and send nothing; return whether the server closed it."""
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
        "POST /match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()

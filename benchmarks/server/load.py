"""Does the service stay up, answer, and keep its memory flat under more clients than it can serve?

The real server runs as a process over a small index, and clients send documents of 50 to 20,000
words to match, more than it can encode, so it has to reject some. Without `--patient` a rejected
client retries at once; with it, after the time given by Retry-After. Clients and server share the
cores.

Exit status 1 when an answer is neither 200 nor 503, or memory grows, or the server stops badly.
"""

import http.client
import json
import math
import random
import re
import signal
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import (
    SEED,
    commit,
    corpus_name,
    make_record,
    markdown_table,
    percentiles,
    read_documents,
    write_record,
)
from benchmarks.server.memory_curve import FLAT, growth, plot, sampled_memory
from benchmarks.server.server import serving
from encoder.checkpoint import DEFAULT_CHECKPOINT
from encoder.onnx_encoder import usable_cores
from index.document import Document

INDEXED_DOCUMENTS = 300
SIZE_CLASSES = (50, 200, 1_000, 5_000, 20_000)  # words; boundaries between the classes
NO_ANSWER = 0  # the "status" of a request whose connection broke
TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request.

    Attributes:
        words: of the document.
        status: or `NO_ANSWER`.
        seconds: until the answer was read.
        tokens: number of tokens read, as reported by the server.
        retry_after: seconds to wait, from a rejection.
    """

    words: int
    status: int
    seconds: float
    tokens: int = 0
    retry_after: int = 0


class TextSource:
    """Texts of any length, cut out of a corpus."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.words = re.findall(r"\S+\s*", "".join(f"{d.text}\n\n" for d in documents))
        while len(self.words) < SIZE_CLASSES[-1]:
            self.words *= 2

    def sample(self, chance: random.Random) -> tuple[int, str]:
        """Sample a log-uniform number of words, and a text of that length."""
        count = self.sample_length(chance)
        start = chance.randrange(len(self.words) - count + 1)
        return count, "".join(self.words[start : start + count])

    @staticmethod
    def sample_length(chance: random.Random) -> int:
        """Sample a log-uniform number of words."""
        exponent = chance.uniform(math.log(SIZE_CLASSES[0]), math.log(SIZE_CLASSES[-1]))
        return round(math.exp(exponent))


class Client:
    """One client: a persistent connection, and its own sequence of documents."""

    def __init__(self, port: int, texts: TextSource, number: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        self._texts = texts
        self._chance = random.Random(f"{SEED} {number}")

    def work(self, deadline: float, patient: bool) -> list[Answer]:
        """Send documents one after another until `deadline`; wait for the last response."""
        answers = []
        while time.monotonic() < deadline:
            answer = self._match(*self._texts.sample(self._chance))
            answers.append(answer)
            if patient and answer.retry_after:
                # The server closes idle connections.
                self._connection.close()
                time.sleep(max(0.0, min(answer.retry_after, deadline - time.monotonic())))
        self._connection.close()
        return answers

    def _match(self, words: int, text: str) -> Answer:
        body = json.dumps({"text": text})
        started = time.monotonic()
        try:
            self._connection.request("POST", "/match", body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return Answer(words, NO_ANSWER, time.monotonic() - started)
        seconds = time.monotonic() - started
        if response.status == http.HTTPStatus.OK:
            tokens = json.loads(content)["receipt"]["tokens_read"]
            return Answer(words, response.status, seconds, tokens)
        retry_after = int(response.getheader("Retry-After", "0"))
        return Answer(words, response.status, seconds, retry_after=retry_after)


def main(
    corpus: Annotated[
        Path | None, typer.Argument(help="A corpus as `longmatch index` reads it.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=10, help="How long clients send.")] = 60,
    clients: Annotated[int, typer.Option(min=1, help="How many at a time.")] = 64,
    checkpoint: Annotated[Path, typer.Option(help="Another one.")] = DEFAULT_CHECKPOINT,
    patient: Annotated[bool, typer.Option("--patient", help="Obey Retry-After.")] = False,
) -> None:
    """Load a real server, and check its answers and its memory."""
    source, documents = commit(), read_documents(corpus, INDEXED_DOCUMENTS)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(documents, checkpoint, Path(folder)) as server,
    ):
        running = server.get("/version")
        started = time.monotonic()
        with sampled_memory(server.process.pid) as memory:
            answers = load(server.port, TextSource(documents), clients, seconds, patient)
        lasted = time.monotonic() - started
        server.process.send_signal(signal.SIGTERM)
        ended_with = server.process.wait(TIMEOUT_SECONDS)
    grown = growth([size for moment, size in memory if moment <= seconds])
    results = summarise(answers, lasted) | {"memory_growth": grown, "memory_curve": memory}
    results["checks"] = {
        "only 200 and 503": {answer.status for answer in answers} <= {200, 503},
        f"memory flat (growth at most {FLAT})": grown <= FLAT,
        "the server ends with status 0": ended_with == 0,
    }
    settings = {
        "corpus": corpus_name(corpus),
        "indexed_documents": len(documents),
        "server": {name: running[name] for name in ("checkpoint", "precision", "provider")},
        "threads": usable_cores(),
        "clients": clients,
        "seconds": seconds,
        "patient": patient,
    }
    record = make_record("load-patient" if patient else "load", source, settings, results)
    typer.echo(table(record))
    typer.echo(plot(memory, write_record(record).with_suffix(".png")))
    raise typer.Exit(0 if all(results["checks"].values()) else 1)


def load(port: int, texts: TextSource, clients: int, seconds: float, patient: bool) -> list[Answer]:
    """Run the clients for the given time and return all responses."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(clients) as pool:
        working = [
            pool.submit(Client(port, texts, number).work, deadline, patient)
            for number in range(clients)
        ]
        return [answer for work in working for answer in work.result()]


def summarise(answers: Sequence[Answer], lasted: float) -> dict[str, Any]:
    """Count responses by status; latencies by document size, and of rejections."""
    statuses = Counter(str(answer.status or "no answer") for answer in answers)
    by_size: dict[str, list[float]] = {_size_class(words): [] for words in SIZE_CLASSES}
    for answer in answers:
        if answer.status == http.HTTPStatus.OK:
            by_size[_size_class(answer.words)].append(answer.seconds)
    refusals = [answer for answer in answers if answer.status == 503]
    return {
        "statuses": dict(sorted(statuses.items())),
        "seconds_until_the_last_answer": round(lasted, 1),
        "tokens_per_second": round(sum(answer.tokens for answer in answers) / lasted),
        "latency_seconds": {
            **{name: _latency(seconds) for name, seconds in by_size.items()},
            "refused": _latency([answer.seconds for answer in refusals]),
        },
        "retry_after_seconds": _latency([float(answer.retry_after) for answer in refusals]),
    }


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    settings, results = record["settings"], record["results"]
    rows = [
        [name, *(one.get(key, "") for key in ("answers", "p50", "p95", "p99"))]
        for name, one in results["latency_seconds"].items()
    ]
    statuses = ", ".join(f"{count:,} of {name}" for name, count in results["statuses"].items())
    memory = [size for _, size in results["memory_curve"]]
    checks = "\n".join(
        f"* {'passed' if passed else 'FAILED'}: {name}"
        for name, passed in results["checks"].items()
    )
    behaviour = "after Retry-After" if settings["patient"] else "at once"
    return (
        f"{settings['clients']} clients for {settings['seconds']:.0f} s, rejected ones retry "
        f"{behaviour}; {settings['threads']} cores. Statuses: {statuses}. "
        f"{results['tokens_per_second']:,} tokens/s. Memory {min(memory):,.0f} to "
        f"{max(memory):,.0f} MB, growth {results['memory_growth']:.3f}.\n\n"
        f"{markdown_table(['seconds', 'answers', 'p50', 'p95', 'p99'], rows)}\n\n{checks}"
    )


def _size_class(words: int) -> str:
    above = bisect_right(SIZE_CLASSES[1:-1], words) + 1
    return f"{SIZE_CLASSES[above - 1]:,} to {SIZE_CLASSES[above]:,} words"


def _latency(seconds: Sequence[float]) -> dict[str, float | int]:
    return {"answers": len(seconds), **(percentiles(seconds) if seconds else {})}


if __name__ == "__main__":
    typer.run(main)

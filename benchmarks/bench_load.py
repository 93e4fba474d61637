"""Does the service stay up, answer and keep its memory under more clients than it can serve?

The real server runs as a process over a small index, and clients match documents of 50 to 20,000
words against it, more of them than it can encode, so that it has to refuse. Without `--patient` a
refused client comes back at once; with it, after the time that Retry-After says.

Exit status 1 when an answer is neither 200 nor 503, or when memory grows.
"""

import http.client
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.common import (
    RESULTS,
    ROOT,
    SEED,
    corpus_name,
    make_record,
    markdown_table,
    percentiles,
    read_documents,
    write_record,
)
from benchmarks.memory_curve import draw_curve, sample_memory
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import usable_cores
from index.document import Document

INDEXED_DOCUMENTS = 300
FEWEST_WORDS, MOST_WORDS = 50, 20_000
SIZE_CLASSES = (50, 200, 1_000, 5_000, MOST_WORDS + 1)
# Memory is flat when the median of the last third of the run is at most this many times the median
# of the second third; the first third is warm-up.
FLAT = 1.03
BROKEN = 0  # the "status" of a request without an answer
TIMEOUT_SECONDS = 600
_COMMAND = [sys.executable, "-c", "from service.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: words sent, status or `BROKEN`, seconds it took, tokens that were read."""

    words: int
    status: int
    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Server:
    """A running `longmatch serve`."""

    process: subprocess.Popen[bytes]
    port: int


class TextSource:
    """Texts of any length, cut out of a corpus."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._words = " ".join(document.text for document in documents).split(" ")

    def draw(self, chance: random.Random) -> tuple[int, str]:
        """Draw a number of words, log-uniform, and a text of so many."""
        exponent = chance.uniform(math.log(FEWEST_WORDS), math.log(MOST_WORDS))
        count = round(math.exp(exponent))
        start = chance.randrange(len(self._words))
        words = self._words[start : start + count]
        while len(words) < count:
            words += self._words[: count - len(words)]
        return count, " ".join(words)


def main(
    corpus: Annotated[Path | None, typer.Argument(help="As `longmatch index` takes it.")] = None,
    seconds: Annotated[float, typer.Option(min=3, help="How long clients begin requests.")] = 60,
    clients: Annotated[int, typer.Option(min=1, help="How many at a time.")] = 64,
    checkpoint: Annotated[Path | None, typer.Option(help="The one that ships if not.")] = None,
    patient: Annotated[bool, typer.Option("--patient", help="Obey Retry-After.")] = False,
) -> None:
    """Load a real server, and check its answers and its memory."""
    documents = read_documents(corpus, INDEXED_DOCUMENTS)
    opened = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    with tempfile.TemporaryDirectory() as folder, serving(documents, checkpoint, Path(folder)) as s:
        texts = TextSource(documents)
        with sample_memory(s.process.pid) as memory:
            started = time.monotonic()
            answers = load(s.port, texts, clients, seconds, patient)
            lasted = time.monotonic() - started
        s.process.send_signal(signal.SIGTERM)
        ended_with = s.process.wait(TIMEOUT_SECONDS)
    growth = memory_growth([size for moment, size in memory if moment <= seconds])
    checks = {
        "only 200 and 503": {answer.status for answer in answers} <= {200, 503},
        f"memory flat (at most {FLAT})": growth <= FLAT,
        "ends with status 0": ended_with == 0,
    }
    settings = {
        "corpus": corpus_name(corpus),
        "indexed_documents": len(documents),
        "checkpoint": f"{opened.name} {opened.fingerprint[:12]}",
        "threads": usable_cores(),
        "clients": clients,
        "seconds": seconds,
        "patient": patient,
    }
    results = {
        **summarise(answers),
        "seconds_until_the_last_answer": lasted,
        "memory_growth": growth,
        "memory_megabytes": memory,
        "checks": checks,
    }
    record = make_record("load-patient" if patient else "load", settings, results)
    typer.echo(table(record))
    path = write_record(record)
    typer.echo(draw_curve(memory, path.with_suffix(".png")))
    raise typer.Exit(0 if all(checks.values()) else 1)

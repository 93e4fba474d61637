"""Does the service stay up, answer, and keep its memory flat under more clients than it can serve?

The real server runs as a process over a small index, and clients send documents of 50 to 20,000
words to match, more than it can encode, so it has to reject some. Without `--patient` a rejected
client retries at once; with it, after the time given by Retry-After. Clients and server share the
cores.

Exit status 1 when an answer is neither 200 nor 503, or memory grows, or the server stops badly.
"""

import random
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.common import (
    SEED,
    checked,
    commit,
    corpus_name,
    markdown_table,
    publish,
    read_documents,
)
from benchmarks.server.client import (
    TIMEOUT_SECONDS,
    Answer,
    DistinctTexts,
    Request,
    closed_loop,
    latency,
    match_request,
    summarise,
)
from benchmarks.server.server import sampled_memory, serving
from encoder.checkpoint import DEFAULT_CHECKPOINT
from encoder.onnx_encoder import usable_cores

INDEXED_DOCUMENTS = 300
SIZE_CLASSES = (49, 200, 1_000, 5_000, 20_000)  # words; boundaries between the classes
# Memory is flat when the median of the last third of a run is at most this many times the median
# of its second third. The first third is warm-up.
FLAT = 1.03


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
    texts = DistinctTexts(documents)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(documents, checkpoint, Path(folder)) as server,
    ):
        running = server.get("/version")
        started = time.monotonic()
        with sampled_memory(server.process.pid) as memory:
            requests = [_requests(texts, number) for number in range(clients)]
            answers = closed_loop(server.port, requests, seconds, patient=patient)
        lasted = time.monotonic() - started
        server.process.send_signal(signal.SIGTERM)
        ended_with = server.process.wait(TIMEOUT_SECONDS)
    grown = growth([size for moment, size in memory if moment <= seconds])
    results = figures(answers, lasted) | {"memory_growth": grown, "memory_curve": memory}
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
    publish("load-patient" if patient else "load", source, settings, results, table)
    raise typer.Exit(0 if all(results["checks"].values()) else 1)


def _requests(texts: DistinctTexts, client: int) -> Iterator[Request]:
    chance = random.Random(f"{SEED} {client}")
    while True:
        yield match_request(*texts.sample(chance))


def figures(answers: Sequence[Answer], lasted: float) -> dict[str, Any]:
    """Count answers by status; latencies by document size, and of rejections."""
    refused = [answer for answer in answers if answer.status == 503]
    accepted = [answer for answer in answers if answer.status == 200]
    classes = {
        f"{low + 1:,} to {high:,} words": [
            answer for answer in accepted if low < answer.words <= high
        ]
        for low, high in pairwise(SIZE_CLASSES)
    }
    return {
        **summarise(answers, {**classes, "refused": refused}),
        "seconds_until_the_last_answer": round(lasted, 1),
        "tokens_per_second": round(sum(answer.tokens for answer in accepted) / lasted),
        "retry_after_seconds": latency([float(answer.retry_after) for answer in refused]),
    }


def growth(sizes: Sequence[float]) -> float:
    """Return the median of the last third over the median of the second third; see `FLAT`.

    Raises:
        ValueError: fewer than three samples.
    """
    third = len(sizes) // 3
    if not third:
        raise ValueError(f"{len(sizes)} samples have no thirds")
    return median(sizes[-third:]) / median(sizes[-2 * third : -third])


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    settings, results = record["settings"], record["results"]
    statuses = ", ".join(f"{count:,} of {name}" for name, count in results["statuses"].items())
    memory = [size for _, size in results["memory_curve"]]
    behaviour = "after Retry-After" if settings["patient"] else "at once"
    return (
        f"{settings['clients']} clients for {settings['seconds']:.0f} s, rejected ones retry "
        f"{behaviour}; {settings['threads']} cores. Statuses: {statuses}. "
        f"{results['tokens_per_second']:,} tokens/s. Memory {min(memory):,.0f} to "
        f"{max(memory):,.0f} MB, growth {results['memory_growth']:.3f}.\n\n"
        f"{latency_table(results)}\n\n{checked(results['checks'])}"
    )


def latency_table(results: Mapping[str, Any]) -> str:
    """Format the percentiles of each class."""
    rows = [
        [name, *(values.get(key, "") for key in ("answers", "p50", "p95", "p99"))]
        for name, values in results["latency_seconds"].items()
    ]
    return markdown_table(["seconds", "answers", "p50", "p95", "p99"], rows)


if __name__ == "__main__":
    typer.run(main)

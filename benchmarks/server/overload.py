"""Does the server meet its limits under ten times the load that it can handle (R6)?

The real server runs as a process over a small index. First one client at a time measures what is
normal: latency, memory, and the capacity in tokens a second. Then requests come at a fixed rate,
independent of the answers (an open loop), at ten times that capacity, short documents and books
mixed, together with slow clients that send a few bytes a second and half-open connections that send
nothing. Then one client at a time again, until latency is normal. All texts differ, so the block
cache does not help (see `benchmarks.server.client`).

Clients and server share the cores, and the clients run in a separate process. Checks use the
latencies that clients see, including their own delays, which the record has as well.

Exit status 1 when a check fails.
"""

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.common import (
    SEED,
    checked,
    commit,
    corpus_name,
    percentiles,
    publish,
    read_documents,
)
from benchmarks.server.client import (
    Answer,
    DistinctTexts,
    Request,
    Sent,
    hold_open,
    match_request,
    open_loop,
    summarise,
)
from benchmarks.server.load import latency_table
from benchmarks.server.server import Server, sampled_memory, serving
from encoder.checkpoint import DEFAULT_CHECKPOINT
from encoder.onnx_encoder import usable_cores
from service.workers.queue import LONG_TOKENS

TIMES_CAPACITY = 10
TOKENS_PER_WORD = 1.4  # of the corpus, for the rate that is sent
SLOW_CLIENTS, HALF_OPEN = 8, 32
MAX_REFUSAL_SECONDS = 0.05
MAX_SLOWDOWN = 2.0
MAX_MEMORY_GROWTH = 1.1
MAX_RECOVERY_SECONDS = 5.0
STOP_SECONDS = 60


def main(
    corpus: Annotated[
        Path | None, typer.Argument(help="A corpus as `longmatch index` reads it.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=2, help="Duration of the overload.")] = 120,
    unloaded: Annotated[
        int, typer.Option(min=10, help="Requests that measure the normal latency.")
    ] = 100,
    indexed: Annotated[int, typer.Option(min=2, help="Documents to match against.")] = 200,
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint to serve.")] = DEFAULT_CHECKPOINT,
) -> None:
    """Overload a real server, and check its responses, latency and memory."""
    source, documents = commit(), read_documents(corpus, indexed)
    texts = DistinctTexts(documents)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(documents, checkpoint, Path(folder)) as server,
        ProcessPoolExecutor(1) as clients,
    ):
        running = server.get("/version")
        with sampled_memory(server.process.pid, every=0.5) as memory:
            results = measure(server, texts, seconds, unloaded, clients)
        server.process.send_signal(signal.SIGTERM)
        results["checks"]["the server ends with status 0"] = server.process.wait(STOP_SECONDS) == 0
    results |= memory_of(memory, results["overload_began"], results["overload_ended"])
    results["checks"][f"memory at most {MAX_MEMORY_GROWTH} times"] = (
        results["memory_growth"] <= MAX_MEMORY_GROWTH
    )
    settings = {
        "corpus": corpus_name(corpus),
        "indexed_documents": len(documents),
        "server": {name: running[name] for name in ("checkpoint", "precision", "limits")},
        "threads": usable_cores(),
        "seconds": seconds,
        "times_capacity": TIMES_CAPACITY,
        "slow_clients": SLOW_CLIENTS,
        "half_open_connections": HALF_OPEN,
    }
    publish("overload", source, settings, results, table)
    raise typer.Exit(0 if all(results["checks"].values()) else 1)


def measure(
    server: Server,
    texts: DistinctTexts,
    seconds: float,
    unloaded: int,
    clients: ProcessPoolExecutor,
) -> dict[str, Any]:
    """Measure before, during and after the overload; see the module docstring."""
    port, began = server.port, time.monotonic()
    chance = random.Random(SEED)
    samples = [texts.sample(chance) for _ in range(unloaded)]
    one_by_one(port, clients, [texts.sample(chance) for _ in range(5)])  # warm
    before = one_by_one(port, clients, samples)
    # One document at a time uses every core: its sentence blocks are encoded side by side.
    capacity = sum(answer.tokens for answer in before) / sum(answer.seconds for answer in before)
    plan = arrivals(texts, seconds, capacity * TIMES_CAPACITY)
    overload_began = time.monotonic() - began
    sent, let_go = clients.submit(overloaded, port, plan, seconds).result()
    overload_ended = time.monotonic() - began
    usual = percentiles([answer.seconds for answer in before])
    recovery = time_to_normal(port, clients, samples)
    return figures(before, sent.answers) | {
        "overload_began": round(overload_began, 1),
        "overload_ended": round(overload_ended, 1),
        "capacity_tokens_per_second": round(capacity),
        "slow_clients_let_go": let_go,
        "seconds_to_normal": recovery,
        "clients": {
            "seconds_late": percentiles(sent.late),
            "processor_share": round(sent.processor_seconds / (overload_ended - overload_began), 3),
        },
        "checks": checks(before, sent.answers, usual["p99"], recovery),
    }


def arrivals(texts: DistinctTexts, seconds: float, tokens_per_second: float) -> list[Request]:
    """Return the requests of an open loop: exponential intervals, documents of all lengths."""
    chance = random.Random(f"{SEED} overload")
    prepared = [texts.sample(chance) for _ in range(200)]
    mean = sum(words for words, _ in prepared) / len(prepared) * TOKENS_PER_WORD
    plan, moment = [], 0.0
    while (moment := moment + chance.expovariate(tokens_per_second / mean)) < seconds:
        words, text = texts.sample(chance)
        plan.append(match_request(words, text, moment))
    return plan


def one_by_one(
    port: int, clients: ProcessPoolExecutor, samples: Sequence[tuple[int, str]]
) -> list[Answer]:
    """Send documents one at a time, each after the response to the previous one."""
    return clients.submit(_one_by_one, port, list(samples)).result()


def _one_by_one(port: int, samples: list[tuple[int, str]]) -> list[Answer]:
    async def run() -> list[Answer]:
        answers = []
        for words, text in samples:
            sent = await open_loop(port, [match_request(words, text)])
            answers += sent.answers
        return answers

    return asyncio.run(run())


def overloaded(port: int, plan: list[Request], seconds: float) -> tuple[Sent, int]:
    """Send a plan, and hold connections open; return the outcome and how many were closed."""

    async def run() -> tuple[Sent, int]:
        holding = asyncio.create_task(hold_open(port, SLOW_CLIENTS, HALF_OPEN, seconds))
        return await open_loop(port, plan), await holding

    return asyncio.run(run())


def time_to_normal(
    port: int, clients: ProcessPoolExecutor, samples: Sequence[tuple[int, str]]
) -> float:
    """Return the seconds until a short document has normal latency three times in a row."""
    short = min(samples, key=lambda sample: sample[0])
    began, good = time.monotonic(), 0
    while good < 3 and time.monotonic() - began < 2 * MAX_RECOVERY_SECONDS:
        (answer,) = one_by_one(port, clients, [short])
        good = good + 1 if answer.status == 200 and answer.seconds < 0.5 else 0
    return round(time.monotonic() - began, 2)


def checks(
    before: Sequence[Answer], answers: Sequence[Answer], usual: float, recovery: float
) -> dict[str, bool]:
    """Return which requirements hold."""
    good = [answer.seconds for answer in answers if answer.status == 200]
    refused = [answer.seconds for answer in answers if answer.status == 503]
    return {
        "before the overload, all requests succeed": {answer.status for answer in before} == {200},
        "only 200 and 503": {answer.status for answer in answers} <= {200, 503},
        f"99 of 100 rejections within {MAX_REFUSAL_SECONDS * 1000:.0f} ms": bool(refused)
        and percentiles(refused)["p99"] <= MAX_REFUSAL_SECONDS,
        f"p99 of the accepted at most {MAX_SLOWDOWN:.0f} times the usual": bool(good)
        and percentiles(good)["p99"] <= MAX_SLOWDOWN * usual,
        f"normal within {MAX_RECOVERY_SECONDS:.0f} s": recovery <= MAX_RECOVERY_SECONDS,
        "every rejection has Retry-After": all(
            answer.retry_after >= 1 for answer in answers if answer.status == 503
        ),
    }


def figures(before: Sequence[Answer], answers: Sequence[Answer]) -> dict[str, Any]:
    """Count answers, and tabulate latencies by class of request, before and during."""
    classes: dict[str, list[Answer]] = {}
    for name, some in {"before": before, "during": answers}.items():
        accepted = [answer for answer in some if answer.status == 200]
        tokens = [answer.tokens for answer in accepted]
        short = [a for a, count in zip(accepted, tokens, strict=True) if count <= LONG_TOKENS]
        long = [a for a, count in zip(accepted, tokens, strict=True) if count > LONG_TOKENS]
        classes |= {
            f"{name}: all": accepted,
            f"{name}: short": short,
            f"{name}: long": long,
            f"{name}: refused": [answer for answer in some if answer.status == 503],
        }
    return {
        **summarise(answers, classes),
        "tokens_answered": sum(answer.tokens for answer in answers),
    }


def memory_of(curve: Sequence[tuple[float, float]], began: float, ended: float) -> dict[str, Any]:
    """Return resident memory before the overload (megabytes, the median) and its growth."""
    usual = median([size for moment, size in curve if began / 2 <= moment < began])
    most = max(size for moment, size in curve if began <= moment <= ended + 1)
    return {
        "memory_before": usual,
        "memory_most": most,
        "memory_growth": round(most / usual, 3),
    }


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    settings, results = record["settings"], record["results"]
    clients = results["clients"]
    statuses = ", ".join(f"{count:,} of {name}" for name, count in results["statuses"].items())
    return (
        f"{settings['times_capacity']} times the capacity of "
        f"{results['capacity_tokens_per_second']:,} tokens/s for {settings['seconds']:.0f} s, "
        f"with {settings['slow_clients']} slow and {settings['half_open_connections']} "
        f"half-open connections; {settings['threads']} cores, shared with the clients. "
        f"Statuses: {statuses}. "
        f"Memory {results['memory_before']:,.0f} MB before, {results['memory_most']:,.0f} MB at "
        f"most. Normal {results['seconds_to_normal']} s after. The "
        f"clients took {clients['processor_share']:.0%} of a core and were late by "
        f"{1000 * clients['seconds_late']['p99']:.0f} ms (p99).\n\n"
        f"{latency_table(results)}\n\n{checked(results['checks'])}"
    )


if __name__ == "__main__":
    typer.run(main)

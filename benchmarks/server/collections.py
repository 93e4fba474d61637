"""What does an empty collection take: memory, threads, disk, and time to create, open and remove?

    python -m benchmarks.server.collections
    python -m benchmarks.server.collections --count 8

Starts the real server on an empty data directory, creates collections, stops, starts again and
removes them. Memory and threads are those of the process, before and after, for each collection.
"""

import signal
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import Spread, commit, make_record, markdown_table, spread, write_record
from benchmarks.server.memory_curve import resident_megabytes
from benchmarks.server.server import Server, started
from benchmarks.speed.scale_steps import processor_seconds
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint

COUNT = 64
ROUNDS = 3
STOPS_IN = 120.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one collection takes.

    Attributes:
        megabytes: of memory, when it was created while the server ran.
        reopened_megabytes: of memory, in a server that was started with it.
        threads: of the process.
        kilobytes: on the disk.
        create_ms: until it was acknowledged.
        open_cpu_ms: of the processor, that it adds to a start until it is ready.
        remove_ms: until it was acknowledged.
    """

    megabytes: float
    reopened_megabytes: float
    threads: float
    kilobytes: float
    create_ms: float
    open_cpu_ms: float
    remove_ms: float


def main(
    count: Annotated[int, typer.Option(min=1, max=64, help="Collections to create.")] = COUNT,
) -> None:
    """Measure collections of the real server."""
    source, checkpoint = commit(), load_checkpoint(DEFAULT_CHECKPOINT)
    rounds = [measure(checkpoint, count) for _ in range(ROUNDS)]
    results = {
        name: asdict(spread([getattr(one, name) for one in rounds]))
        for name in Cost.__dataclass_fields__
    }
    settings = {"collections": count, "rounds": ROUNDS, "checkpoint": checkpoint.name}
    record = make_record("collections", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(checkpoint: Checkpoint, count: int) -> Cost:
    """Create, open and remove collections; return what each of them took, in the mean."""
    names = [f"c{number}" for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with started(data, checkpoint.directory) as server:
            _stop(server)  # the first start makes the default collection
        with started(data, checkpoint.directory) as server:
            empty_start = processor_seconds(server.process.pid)
            pid = server.process.pid
            empty, threads = resident_megabytes(pid), _threads(pid)
            created = sum(_ask(server, "PUT", name) for name in names)
            grown, more_threads = resident_megabytes(pid) - empty, _threads(pid) - threads
            _stop(server)
        kilobytes = sum(one.stat().st_size for one in (data / "collections").rglob("*")) / 1024
        with started(data, checkpoint.directory) as server:
            start = processor_seconds(server.process.pid)
            reopened = resident_megabytes(server.process.pid) - empty
            removed = sum(_ask(server, "DELETE", name) for name in names)
            _stop(server)
    return Cost(
        megabytes=grown / count,
        reopened_megabytes=reopened / count,
        threads=more_threads / count,
        kilobytes=kilobytes / count,
        create_ms=1000 * created / count,
        open_cpu_ms=1000 * (start - empty_start) / count,
        remove_ms=1000 * removed / count,
    )


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    units = {
        "megabytes": "memory MB",
        "reopened_megabytes": "memory MB after a restart",
        "threads": "threads",
        "kilobytes": "disk KB",
        "create_ms": "create ms",
        "open_cpu_ms": "CPU ms at a start",
        "remove_ms": "remove ms",
    }
    spreads = [Spread(**record["results"][name]) for name in units]
    return markdown_table(list(units.values()), [spreads])


def _ask(server: Server, method: str, name: str) -> float:
    """Create or remove a collection; return the seconds."""
    url = f"http://127.0.0.1:{server.port}/collections/{name}"
    began = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
        answer.read()
    return time.perf_counter() - began


def _threads(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} is gone")


def _stop(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(STOPS_IN)


if __name__ == "__main__":
    typer.run(main)

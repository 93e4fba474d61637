"""How long does `POST /match` take, and how many searches does the real server answer a second?

    python -m benchmarks.server.search
    python -m benchmarks.server.search --size 1000 --size 100000 --keep /large/disk
    python -m benchmarks.server.search --search-processes 2

Documents are `benchmarks.synthetic.articles`: about 2,500 words and 60 blocks each, put into
the store without encoding. Each client has one connection and sends its next request when it has
the response to the last one. Queries are stored documents, by id or by their text. Clients and
server share the cores. They begin when the server has compared its store with the digest of it,
which it does while it searches after a start, and which reads the whole file.

All variants run in turns. The table also has the CPU time of the server for each
answer, which other load on the machine affects less; that of search processes is part of it.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    SEED,
    Spread,
    commit,
    interleave,
    make_record,
    markdown_table,
    percentiles,
    spread,
    write_record,
)
from benchmarks.server.client import Request, closed_loop
from benchmarks.server.server import Server, private_megabytes, processor_seconds, started
from benchmarks.synthetic.articles import article_model, store_articles
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder, usable_cores
from index.directory.data_directory import STORE_FILE

SIZES = [1_000, 10_000]
CLIENTS = [1, 8, 64]
ROUNDS, SECONDS = 3, 4.0
TEXTS = 50  # other queries by text are these again
START_SECONDS = 60
WARM_UP, WARM_UP_SECONDS = 3, 60.0  # requests that read what later ones find in memory
MODES: dict[str, dict[str, object]] = {
    "hybrid": {"mode": "hybrid", "align": False},
    "hybrid, aligned": {"mode": "hybrid"},
    "semantic": {"mode": "semantic", "align": False},
    "semantic, aligned": {"mode": "semantic"},
    "lexical": {"mode": "lexical"},
}


@dataclass(frozen=True, slots=True)
class Variant:
    """What clients ask for, and how many of them."""

    mode: str
    query: str
    clients: int

    def __str__(self) -> str:
        return f"{self.mode}, by {self.query}, {self.clients} clients"


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a variant.

    Attributes:
        answered: seconds of each answer.
        refused: number of other responses.
        seconds: that the round took.
        processor: CPU seconds of the server and its search processes.
        megabytes: memory that one of these shares with no other process; 0 without them.
    """

    answered: list[float]
    refused: int
    seconds: float
    processor: float
    megabytes: float


def main(
    size: Annotated[list[int] | None, typer.Option(min=100, help="Documents; repeatable.")] = None,
    clients: Annotated[list[int] | None, typer.Option(min=1, help="Repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each variant in a round.")] = SECONDS,
    checkpoint: Annotated[Path, typer.Option(help="Another one.")] = DEFAULT_CHECKPOINT,
    search_processes: Annotated[int, typer.Option(min=0, help="Of the server.")] = 0,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder where data directories are kept, and used again by later runs."),
    ] = None,
) -> None:
    """Measure searches on the real server."""
    source, opened = commit(), load_checkpoint(checkpoint)
    sizes, at_a_time = size or SIZES, clients or CLIENTS
    with tempfile.TemporaryDirectory() as folder:
        results = {
            str(number): measure(
                keep or Path(folder), number, opened, at_a_time, seconds, search_processes
            )
            for number in sizes
        }
    settings = {
        "sizes": sizes,
        "clients": at_a_time,
        "seconds": seconds,
        "rounds": ROUNDS,
        "checkpoint": opened.name,
        "threads": usable_cores(),
        "search_processes": search_processes,
        "seed": SEED,
    }
    record = make_record("search", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    folder: Path,
    size: int,
    checkpoint: Checkpoint,
    clients: Sequence[int],
    seconds: float,
    search_processes: int = 0,
) -> dict[str, Any]:
    """Serve articles from a data directory in the folder, made unless it is there, and search."""
    path = articles_directory(folder, size, checkpoint)
    variants = [Variant(mode, "id", count) for count in clients for mode in MODES]
    variants += [Variant(mode, "text", clients[0]) for mode in MODES]
    more = {
        "LONGMATCH_SEARCH_PROCESSES": str(search_processes),
        "LONGMATCH_FIND_FAMILIES": "false",  # which a new store has yet to be searched for
    }
    with started(path, checkpoint.directory, more) as server:
        _wait_for_processes(server, search_processes)
        queries = {"id": _ids(size), "text": _texts()}
        for variant in variants:
            closed_loop(server.port, [iter(_requests(variant, queries)[:WARM_UP])], WARM_UP_SECONDS)
        rounds = interleave(
            {str(variant): _runner(server, variant, queries, seconds) for variant in variants},
            ROUNDS,
        )
    return {
        str(variant): {**asdict(variant), **_figures(rounds[str(variant)])} for variant in variants
    }


def articles_directory(folder: Path, size: int, checkpoint: Checkpoint) -> Path:
    """Return the data directory of so many articles in a folder; it is made unless it is there."""
    path = folder / f"articles-{checkpoint.name}-{size}"
    if not (path / STORE_FILE).exists():
        encoder = OnnxEncoder(checkpoint)
        sizes = {"dimension": encoder.dimension, "block_dimension": checkpoint.block_dimension}
        store_articles(path, size, encoder.fingerprint, **sizes)
    return path


def _ids(size: int) -> list[dict[str, object]]:
    order = np.random.default_rng(SEED).permutation(size).tolist()
    return [{"id": f"article{number}"} for number in order]


def _texts() -> list[dict[str, object]]:
    model = article_model(SEED, 1, 1)
    return [{"text": model.article(2 * 10**6 + number).document.text} for number in range(TEXTS)]


def _requests(
    variant: Variant, queries: Mapping[str, Sequence[dict[str, object]]]
) -> list[Request]:
    mode = MODES[variant.mode]
    return [Request(0, json.dumps(query | mode).encode()) for query in queries[variant.query]]


def _runner(
    server: Server,
    variant: Variant,
    queries: Mapping[str, Sequence[dict[str, object]]],
    seconds: float,
) -> Callable[[int], Round]:
    requests = _requests(variant, queries)

    def run(number: int) -> Round:
        start = number * len(requests) // ROUNDS  # another part of the queries in each round
        before, began = _processor_seconds(server), time.perf_counter()
        clients = [
            islice(cycle(requests), start + client, None, variant.clients)
            for client in range(variant.clients)
        ]
        answers = closed_loop(server.port, clients, seconds)
        return Round(
            answered=[answer.seconds for answer in answers if answer.status == 200],
            refused=sum(answer.status != 200 for answer in answers),
            seconds=time.perf_counter() - began,
            processor=_processor_seconds(server) - before,
            megabytes=max(map(private_megabytes, _children(server)), default=0.0),
        )

    return run


def _figures(rounds: Sequence[Round]) -> dict[str, Any]:
    answered = [taken for turn in rounds for taken in turn.answered]
    return {
        "answers": len(answered),
        "refused": sum(turn.refused for turn in rounds),
        "seconds_each": percentiles(answered),
        "answers_a_second": asdict(spread([len(turn.answered) / turn.seconds for turn in rounds])),
        "processor_seconds_each": sum(turn.processor for turn in rounds) / len(answered),
        "search_process_megabytes": max(turn.megabytes for turn in rounds),
    }


def _wait_for_processes(server: Server, number: int) -> None:
    """Wait until so many search processes can be searched.

    Raises:
        RuntimeError: they cannot, after a minute.
    """
    deadline = time.monotonic() + START_SECONDS
    while server.metrics()["longmatch_search_processes"] < number:
        if time.monotonic() > deadline:
            raise RuntimeError(f"there are no {number} search processes")
        time.sleep(0.05)


def _children(server: Server) -> list[int]:
    """Return the search processes of a server; it has no other children here."""
    tasks = Path(f"/proc/{server.process.pid}/task")
    return [int(pid) for each in tasks.glob("*/children") for pid in each.read_text().split()]


def _processor_seconds(server: Server) -> float:
    return sum(map(processor_seconds, [server.process.pid, *_children(server)]))


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    header = ["search", "p50 ms", "p99 ms", "answers/s", "CPU ms of the server", "refused"]
    tables = []
    for size, variants in record["results"].items():
        rows = [
            [
                name,
                *(1e3 * figures["seconds_each"][p] for p in ("p50", "p99")),
                Spread(**figures["answers_a_second"]),
                1e3 * figures["processor_seconds_each"],
                figures["refused"],
            ]
            for name, figures in variants.items()
        ]
        megabytes = max(
            figures.get("search_process_megabytes", 0.0) for figures in variants.values()
        )
        private = f"; a search process has {megabytes:.0f} MiB of its own" if megabytes else ""
        tables.append(f"{int(size):,} documents{private}\n\n{markdown_table(header, rows)}")
    return "\n\n".join(tables)


if __name__ == "__main__":
    typer.run(main)

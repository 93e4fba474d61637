"""Print results of benchmarks as Markdown: the numbers of the README and of the documents."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from benchmarks import gpu
from benchmarks.common import RESULTS
from benchmarks.models import table as models
from benchmarks.quality import calibration, engines, retrieval, unseen
from benchmarks.server import load, overload, search
from benchmarks.speed import encoder, index, scale, search_peers

TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "quality": retrieval.table,
    "calibration": calibration.table,
    "unseen": unseen.table,
    engines.BENCHMARK: engines.table,
    "encoder": encoder.table,
    gpu.BENCHMARK: gpu.table,
    "load": load.table,
    "load-patient": load.table,
    "overload": overload.table,
    "search": search.table,
    **{f"{search_peers.BENCHMARK}-{name}": search_peers.table for name in search_peers.CORPORA},
    "index": index.table,
    "scale": scale.table,
    models.BENCHMARK: lambda record: models.format_result(record["results"]),
}


def main(
    records: Annotated[
        list[str] | None,
        typer.Argument(help="Names of results, such as quality-20261122T205556; else the newest."),
    ] = None,
) -> None:
    """Print the newest result of every benchmark, or those that are named."""
    for record in _named(records) if records else _newest():
        typer.echo(f"{_heading(record)}\n\n{TABLES[record['benchmark']](record)}\n")


def read_result(name: str) -> dict[str, Any]:
    """Return a result by the name of its file, with or without `.json`.

    Raises:
        OSError: there is none.
    """
    path = RESULTS / f"{name.removesuffix('.json')}.json"
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _named(names: Sequence[str]) -> list[dict[str, Any]]:
    try:
        return [read_result(name) for name in names]
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: there is no such result") from error


def _newest() -> list[dict[str, Any]]:
    newest: dict[str, dict[str, Any]] = {}
    for path in RESULTS.glob("*.json"):
        record = read_result(path.name)
        latest = newest.get(record["benchmark"], record)
        newest[record["benchmark"]] = max(record, latest, key=lambda found: str(found["date"]))
    return [newest[benchmark] for benchmark in TABLES if benchmark in newest]


def _heading(record: dict[str, Any]) -> str:
    machine = record["hardware"]
    return (
        f"### {record['benchmark']}\n\n{record['date'][:10]}, commit {record['commit']}, "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB"
    )


if __name__ == "__main__":
    typer.run(main)

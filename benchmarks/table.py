"""Print results of benchmarks as Markdown: the numbers of the README and of the documents."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from benchmarks.common import RESULTS
from benchmarks.engines import cluster, encoding_on_ray, latency, words
from benchmarks.gpu import encoding_table as gpu_encoding
from benchmarks.gpu import index as gpu_index
from benchmarks.models import table as models
from benchmarks.quality import (
    alignment_depth,
    calibration,
    examples,
    explanations,
    rerank,
    retrieval,
)
from benchmarks.reading import checkpoints
from benchmarks.reading import table as reading_table
from benchmarks.reliability import cluster_kills
from benchmarks.reliability import run as reliability
from benchmarks.server import collections, load, overload, search, starts, upload
from benchmarks.speed import (
    alignment,
    backup,
    encoder,
    families,
    filters,
    index,
    lexical,
    long_document,
    precision,
    scale,
)
from benchmarks.speed.peers import search as search_peers

TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "quality": retrieval.table,
    "alignment-depth": alignment_depth.table,
    "reading-valid": reading_table.table,
    "reading-test": reading_table.table,
    "reading-test-smith-minilm-l2": reading_table.table,
    "checkpoints": checkpoints.table,
    "calibration": calibration.table,
    "examples-lexical": examples.table,
    "examples-hybrid": examples.table,
    "encoder": encoder.table,
    "encoder-quality": encoder.table,
    "encoder-shares": encoder.table,
    "encoder-variants": encoder.table,
    "load": load.table,
    "load-patient": load.table,
    "overload": overload.table,
    "search": search.table,
    **{f"{search_peers.BENCHMARK}-{name}": search_peers.table for name in search_peers.CORPORA},
    "index": index.table,
    "precision": precision.table,
    "engines": latency.table,
    "engines-server": latency.table,
    encoding_on_ray.BENCHMARK: encoding_on_ray.table,
    cluster.BENCHMARK: cluster.table,
    gpu_encoding.BENCHMARK: gpu_encoding.table,
    gpu_index.BENCHMARK: gpu_index.table,
    "engines-words": words.table,
    "engines-words-server": words.table,
    reliability.MODEL: reliability.table,
    reliability.SWAPS: reliability.table,
    reliability.KILLS: reliability.table,
    cluster_kills.BENCHMARK: cluster_kills.table,
    "lexical": lexical.table,
    "filters": filters.table,
    "families": families.table,
    "scale": scale.table,
    "starts": starts.table,
    "collections": collections.table,
    "alignment": alignment.table,
    "long-document": long_document.table,
    "upload": upload.table,
    models.BENCHMARK: lambda record: models.format_result(record["results"]),
    "explanations": explanations.table,
    "rerank": rerank.table,
    "backup": backup.table,
}


def main(
    records: Annotated[
        list[str] | None,
        typer.Argument(help="Names of results, such as colde-20261121T225534; else the newest."),
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
        newest[record["benchmark"]] = max(record, latest, key=lambda one: str(one["date"]))
    return [newest[benchmark] for benchmark in TABLES if benchmark in newest]


def _heading(record: dict[str, Any]) -> str:
    machine = record["hardware"]
    return (
        f"### {record['benchmark']}\n\n{record['date'][:10]}, commit {record['commit']}, "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB"
    )


if __name__ == "__main__":
    typer.run(main)

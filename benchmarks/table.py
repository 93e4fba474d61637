"""Print the newest result of every benchmark as Markdown: the numbers of the README."""

import json
from collections.abc import Callable
from typing import Any

import typer

from benchmarks.ablation import table as ablation_table
from benchmarks.colde import table as colde_table
from benchmarks.common import RESULTS
from benchmarks.comparison import record as models
from benchmarks.engines import latency, words
from benchmarks.pretraining import table as pretraining_table
from benchmarks.quality import (
    alignment_depth,
    calibration,
    examples,
    explanations,
    match_ignition_table,
    rerank,
    retrieval,
)
from benchmarks.reading import table as reading_table
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
    "calibration": calibration.table,
    "examples-lexical": examples.table,
    "examples-hybrid": examples.table,
    "encoder": encoder.table,
    "encoder-quality": encoder.table,
    "encoder-shares": encoder.table,
    "load": load.table,
    "load-patient": load.table,
    "overload": overload.table,
    "search": search.table,
    "search-peers": search_peers.table,
    "index": index.table,
    "precision": precision.table,
    "engines": latency.table,
    "engines-server": latency.table,
    "engines-words": words.table,
    "engines-words-server": words.table,
    reliability.MODEL: reliability.table,
    reliability.SWAPS: reliability.table,
    reliability.KILLS: reliability.table,
    "lexical": lexical.table,
    "filters": filters.table,
    "families": families.table,
    "scale": scale.table,
    "starts": starts.table,
    "collections": collections.table,
    "alignment": alignment.table,
    "long-document": long_document.table,
    "upload": upload.table,
    "ablation": ablation_table.table,
    "colde": colde_table.table,
    "models-proposals": models.table,
    "models-wikispeedia": models.table,
    "pretraining": pretraining_table.table,
    "pretraining-scale": pretraining_table.scale_table,
    "explanations": explanations.table,
    "rerank": rerank.table,
    "backup": backup.table,
    "match-ignition": match_ignition_table.table,
}


def main() -> None:
    """Print the newest result of every benchmark."""
    newest: dict[str, dict[str, Any]] = {}
    for path in RESULTS.glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        latest = newest.get(record["benchmark"], record)
        newest[record["benchmark"]] = max(record, latest, key=lambda one: str(one["date"]))
    for benchmark, to_markdown in TABLES.items():
        if benchmark in newest:
            typer.echo(f"{_heading(newest[benchmark])}\n\n{to_markdown(newest[benchmark])}\n")


def _heading(record: dict[str, Any]) -> str:
    machine = record["hardware"]
    return (
        f"### {record['benchmark']}\n\n{record['date'][:10]}, commit {record['commit']}, "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB"
    )


if __name__ == "__main__":
    typer.run(main)

"""Print the newest result of every benchmark as Markdown: the numbers of the README."""

import json
from collections.abc import Callable
from typing import Any

import typer

from benchmarks.ablation import table as ablation_table
from benchmarks.colde import table as colde_table
from benchmarks.common import RESULTS
from benchmarks.quality import calibration as bench_calibration
from benchmarks.quality import explanations as bench_explanations
from benchmarks.quality import match_ignition as match_ignition_table
from benchmarks.quality import rerank as bench_rerank
from benchmarks.quality import retrieval as bench_quality
from benchmarks.reliability import run as bench_reliability
from benchmarks.server import load as bench_load
from benchmarks.server import overload as bench_overload
from benchmarks.server import upload as bench_upload
from benchmarks.speed import backup as bench_backup
from benchmarks.speed import encoder as bench_encoder
from benchmarks.speed import families as bench_families
from benchmarks.speed import filters as bench_filters
from benchmarks.speed import index as bench_index
from benchmarks.speed import scale as bench_scale

TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "quality": bench_quality.table,
    "calibration": bench_calibration.table,
    "encoder": bench_encoder.table,
    "encoder-quality": bench_encoder.table,
    "load": bench_load.table,
    "load-patient": bench_load.table,
    "overload": bench_overload.table,
    "index": bench_index.table,
    bench_reliability.MODEL: bench_reliability.table,
    bench_reliability.SWAPS: bench_reliability.table,
    bench_reliability.KILLS: bench_reliability.table,
    "filters": bench_filters.table,
    "families": bench_families.table,
    "scale": bench_scale.table,
    "upload": bench_upload.table,
    "ablation": ablation_table.table,
    "colde": colde_table.table,
    "explanations": bench_explanations.table,
    "rerank": bench_rerank.table,
    "backup": bench_backup.table,
    "match-ignition": match_ignition_table.table,
}


def main() -> None:
    """Print the newest result of every benchmark."""
    newest: dict[str, dict[str, Any]] = {}
    for path in RESULTS.glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        former = newest.get(record["benchmark"], record)
        newest[record["benchmark"]] = max(record, former, key=lambda one: str(one["date"]))
    for benchmark, lay_out in TABLES.items():
        if benchmark in newest:
            typer.echo(f"{_heading(newest[benchmark])}\n\n{lay_out(newest[benchmark])}\n")


def _heading(record: dict[str, Any]) -> str:
    machine = record["hardware"]
    return (
        f"### {record['benchmark']}\n\n{record['date'][:10]}, commit {record['commit']}, "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB"
    )


if __name__ == "__main__":
    typer.run(main)

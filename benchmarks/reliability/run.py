"""Does the index stay correct under random operations, swaps and kills? Each check has a seed.

    python -m benchmarks.reliability.run model --operations 20000
    python -m benchmarks.reliability.run swaps --seconds 300
    python -m benchmarks.reliability.run kills --kills 200 --documents 20000

Each exits with status 1 if anything was wrong; the same seed repeats the same operations.
See docs/index-life.md.
"""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import SEED, commit, make_record, markdown_table, write_record
from benchmarks.reliability.kill_check import run_kills
from benchmarks.reliability.model_check import run_model
from benchmarks.reliability.swap_check import SwapPlan, run_swaps

MODEL, SWAPS, KILLS = "reliability-model", "reliability-swaps", "reliability-kills"

Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
Write = Annotated[bool, typer.Option(help="Write the result to benchmarks/results.")]

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def model(operations: int = 20_000, seed: Seed = SEED, write: Write = True) -> None:
    """R4: random operations with restarts, compared with a dict and brute force."""
    source = commit()
    typer.echo(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        report = run_model(Path(folder, "data"), operations, seed)
    _report(MODEL, source, {"operations": operations, "seed": seed}, report.as_json(), write=write)


@app.command()
def swaps(
    seconds: float = 300.0,
    searchers: int = 8,
    writers: int = 4,
    seed: Seed = SEED,
    write: Write = True,
) -> None:
    """R5: searchers and writers at once while generations are swapped continuously."""
    source = commit()
    typer.echo(f"seed {seed}")
    plan = SwapPlan(seconds, searchers, writers, seed)
    with tempfile.TemporaryDirectory() as folder:
        report = run_swaps(Path(folder, "data"), plan)
    settings = {"seconds": seconds, "searchers": searchers, "writers": writers, "seed": seed}
    _report(SWAPS, source, settings, report.as_json(), write=write)


@app.command()
def kills(
    kills: int = 200, documents: int = 20_000, seed: Seed = SEED, write: Write = True
) -> None:
    """R1: kill -9 during upserts, deletes, trainings, publishing and backups."""
    source = commit()
    typer.echo(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        report = run_kills(Path(folder, "data"), kills, seed, documents)
    settings = {"kills": kills, "documents": documents, "seed": seed}
    _report(KILLS, source, settings, report.as_json(), write=write)


def table(record: dict[str, Any]) -> str:
    """Format the result of one check."""
    rows = {MODEL: _model_rows, SWAPS: _swap_rows, KILLS: _kill_rows}[record["benchmark"]]
    return markdown_table(["what", "number"], rows(record["results"]))


def _model_rows(results: dict[str, Any]) -> list[list[object]]:
    kinds = results["kinds"]
    return [
        ["operations, all right", results["operations"]],
        *([f"of them {kind}", number] for kind, number in sorted(kinds.items())),
        ["documents at the end", results["documents"]],
        ["generations", results["generations"]],
        ["seed", results["seed"]],
    ]


def _swap_rows(results: dict[str, Any]) -> list[list[object]]:
    return [
        ["answers checked", results["answers"]],
        ["of them exact", results["exact_answers"]],
        ["wrong", len(results["wrong"])],
        ["recall@10 of the others", results["recall_at_10"]],
        ["changes", results["changes"]],
        ["generations", results["generations"]],
        ["generations that answers name", results["generations_named"]],
        ["search p99 ms", 1_000 * results["search_seconds"]["p99"]],
        ["seed", results["plan"]["seed"]],
    ]


def _kill_rows(results: dict[str, Any]) -> list[list[object]]:
    return [
        ["kills", results["kills"]],
        ["documents at the end", results["documents"]],
        ["acknowledged changes", results["acknowledged"]],
        ["acknowledged documents lost", results["lost"]],
        ["deleted documents back", results["back"]],
        ["documents twice", results["twice"]],
        ["other problems", len(results["wrong"])],
        ["changes in flight that were there whole", results["in_flight"]],
        ["backups that were whole", results["backups"]],
        ["backups that a kill cut", results["backups_cut"]],
        ["worst time to ready, s", results["worst_ready_seconds"]],
        ["worst processor time to ready, s", results["worst_ready_processor_seconds"]],
        ["generations", results["generations"]],
        ["seed", results["seed"]],
    ]


def _report(
    benchmark: str, source: str, settings: dict[str, Any], results: dict[str, Any], *, write: bool
) -> None:
    record = make_record(benchmark, source, settings, results)
    typer.echo(table(record))
    if write:
        write_record(record)
    wrong = [*results.get("wrong", ())]
    if wrong or any(results.get(name) for name in ("lost", "back", "twice")):
        typer.echo("\n".join(wrong), err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    app()

"""CoLDE, SMITH and both, trained alike on the same pairs over the same frozen block vectors.

Beside them SMITH with CoLDE's augmentation (sections of a document attract, of others repel), the
paper's ablations (Table 2), its test with shuffled sections (figure 8), its lengths (figure 7) and
its sizes of the batch (figure 6).
The models train on the training pairs of each corpus. Learning rates, one for each model and loss,
and thresholds are chosen on validation pairs. Results are on test pairs and test queries.

Vectors of trained models are kept in a work directory: rerun the command to resume.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.ablation.data import NDCG, PAIR_MEASURES, find_folders
from benchmarks.ablation.training import tokens_read
from benchmarks.colde.data import WHOLE, Answers, read_corpora, read_truths
from benchmarks.colde.models import Planned
from benchmarks.colde.plan import (
    BOTH,
    REFERENCE,
    Size,
    documents_of,
    plan_batches,
    plan_lengths,
    plan_table,
)
from benchmarks.colde.rates import Tuned, tune
from benchmarks.colde.runs import Bench, answers_of, cpu_seconds, is_kept, new_bench, train_all
from benchmarks.colde.table import plot, table
from benchmarks.common import commit, make_record, write_record
from encoder.arrays import Float64
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.significance import compare_paired
from index.progress import SilentProgress

KEPT = Path(tempfile.gettempdir(), "longmatch-ablation")


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    corpus: Annotated[list[str] | None, typer.Option(help="Only corpora of this name.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Start no model after this many minutes.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Models of each kind.")] = 2,
    row: Annotated[
        list[str] | None, typer.Option(help="Only this row of the table; may be repeated.")
    ] = None,
    checkpoint: Annotated[Path, typer.Option(help="Its sentence level.")] = DEFAULT_CHECKPOINT,
    work: Annotated[Path, typer.Option(help="Keeps blocks and trained models' vectors.")] = KEPT,
) -> None:
    """Train the models that are not kept yet, and evaluate all on test pairs and queries."""
    source, size = commit(), Size()
    grids = choose_rows([plan_table(seed, size) for seed in range(seeds)], row or ())
    encoder = OnnxEncoder(load_checkpoint(checkpoint))
    folders = find_folders(data, corpus or ())
    read = read_corpora(folders, encoder, work / "blocks", SilentProgress())
    truths, kept = read_truths(folders, read), work / "colde"
    bench = new_bench(read, truths, kept, lambda text: typer.echo(text, err=True))
    end = np.inf if minutes is None else time.monotonic() + 60 * minutes
    train_all(bench, [one for grid in grids for models in grid.values() for one in models], end)
    tuned = tune(bench, grids)
    rates = {name: one.rate for name, one in tuned.items()}
    batches = [plan_batches(seed, size, rates) for seed in range(seeds)]
    lengths = plan_lengths(0, size, rates)
    for plan in (*batches, lengths):
        train_all(bench, [one for models in plan.values() for one in models], end)
    record = make_record(
        "colde",
        source,
        {
            "corpora": list(read.names),
            "checkpoint": encoder.checkpoint.name,
            "precision": encoder.precision,
            "size": asdict(size),
            "tokens_read": {_length(n): tokens_read(read, n) for n in size.lengths},
        },
        {
            "reference": REFERENCE,
            "rates": {row: one.record() for row, one in tuned.items() if one.validation},
            "quality": quality(bench, tuned),
            "batches": batch_sizes(bench, batches),
            "lengths": {
                row: {
                    _length(one.tuning["max_blocks"]): {
                        "accuracy": accuracy(answers_of(bench, one), WHOLE)
                    }
                    for one in some
                    if is_kept(bench, one)
                }
                for row, some in lengths.items()
            },
        },
    )
    typer.echo(table(record))
    path = write_record(record)
    plot(record, path.with_suffix(".svg"))


def choose_rows(
    grids: Sequence[Mapping[str, list[Planned]]], rows: Sequence[str]
) -> list[dict[str, list[Planned]]]:
    """Return the named rows of each seed; all if none is named.

    Raises:
        typer.BadParameter: a row is not in the table.
    """
    for name in rows:
        if name not in grids[0]:
            known = "; ".join(grids[0])
            raise typer.BadParameter(f"{name!r} is none of: {known}", param_hint="--row")
    return [{name: grid[name] for name in grid if not rows or name in rows} for grid in grids]


def batch_sizes(
    bench: Bench, plans: Sequence[Mapping[str, Sequence[Planned]]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Evaluate CoLDE by the documents of a batch: of those seeds that are trained, the mean."""
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for row in dict.fromkeys(name for plan in plans for name in plan):
        for models in zip(*(plan[row] for plan in plans), strict=True):
            trained = [one for one in models if is_kept(bench, one)]
            by_seed = [accuracy(answers_of(bench, one), WHOLE) for one in trained]
            if by_seed:
                results.setdefault(row, {})[str(documents_of(models[0]))] = {
                    "steps": models[0].tuning["steps"],
                    "accuracy": float(np.mean(by_seed)),
                    "by_seed": by_seed,
                }
    return results


def quality(bench: Bench, tuned: Mapping[str, Tuned]) -> dict[str, Any]:
    """Evaluate the rows at their best rates: means over seeds, rows against the reference."""
    by_row: dict[str, list[tuple[Planned, ...]]] = {
        row: [(model,) for model in one.models] for row, one in tuned.items()
    }
    for row, names in BOTH.items():
        if all(name in tuned for name in names):
            first, second = ({one.seed: one for one in tuned[name].models} for name in names)
            if seeds := sorted(first.keys() & second.keys()):
                by_row[row] = [(first[seed], second[seed]) for seed in seeds]
    answers = {row: [answers_of(bench, *one) for one in some] for row, some in by_row.items()}
    return {
        row: {
            "settings": [one.settings for one in by_row[row][0]],
            "seeds": [models[0].seed for models in by_row[row]],
            "cpu_seconds": float(
                np.mean([sum(cpu_seconds(bench, o) for o in models) for models in by_row[row]])
            ),
            **summary(of_seeds, bench),
            "against": {}
            if row == REFERENCE or REFERENCE not in answers
            else {
                name: asdict(compare_paired(each(of_seeds, name), each(answers[REFERENCE], name)))
                for name in ("accuracy", "ndcg")
            },
        }
        for row, of_seeds in answers.items()
    }


def summary(of_seeds: Sequence[Sequence[Answers]], bench: Bench) -> dict[str, Any]:
    """Return the figures of one row, means over seeds; corpora count alike."""
    readings = list(of_seeds[0][0].measures)
    corpora = {
        name: {
            **{
                measure: float(np.mean([one[place].measures[WHOLE][measure] for one in of_seeds]))
                for measure in PAIR_MEASURES
            },
            NDCG: float(np.mean([one[place].ndcg.mean() for one in of_seeds])),
        }
        for place, name in enumerate(bench.data.names)
    }
    return {
        "corpora": corpora,
        "accuracy": float(np.mean([accuracy(one, WHOLE) for one in of_seeds])),
        "ndcg": float(np.mean([corpora[name][NDCG] for name in corpora])),
        "by_seed": [accuracy(one, WHOLE) for one in of_seeds],
        "shuffled": {
            reading: float(np.mean([accuracy(one, reading) for one in of_seeds]))
            for reading in readings
        },
    }


def accuracy(answers: Sequence[Answers], reading: str) -> float:
    """Return the accuracy on the test pairs, corpora alike."""
    return float(np.mean([one.measures[reading]["accuracy"] for one in answers]))


def each(of_seeds: Sequence[Sequence[Answers]], what: str) -> Float64:
    """Return a figure of each pair or query of all corpora, the mean over the seeds."""
    return np.concatenate(
        [
            np.mean([one.right[WHOLE] if what == "accuracy" else one.ndcg for one in seeds], axis=0)
            for seeds in zip(*of_seeds, strict=True)
        ]
    )


def _length(blocks: int) -> str:
    return f"{blocks} blocks"


if __name__ == "__main__":
    typer.run(main)

"""CoLDE, SMITH and both, trained alike on the same pairs over the same frozen block vectors.

Beside them SMITH with CoLDE's augmentation (sections of a document attract, of others repel), the
paper's ablations (Table 2), its test with shuffled sections (figure 8) and its lengths (figure 7).
The models train on the training pairs of each corpus, thresholds are chosen on validation pairs,
results are on test pairs and test queries.

Vectors of trained models are kept in a work directory: rerun the command to resume.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.ablation.data import NDCG, PAIR_MEASURES, find_folders
from benchmarks.ablation.training import tokens_read
from benchmarks.colde.data import WHOLE, Answers, read_corpora, read_truths
from benchmarks.colde.models import Planned
from benchmarks.colde.plan import BOTH, REFERENCE, Size, plan_lengths, plan_table
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
    checkpoint: Annotated[Path, typer.Option(help="Its sentence level.")] = DEFAULT_CHECKPOINT,
    work: Annotated[Path, typer.Option(help="Keeps blocks and trained models' vectors.")] = KEPT,
) -> None:
    """Train the models that are not kept yet, and evaluate all on test pairs and queries."""
    source, size = commit(), Size()
    encoder = OnnxEncoder(load_checkpoint(checkpoint))
    folders = find_folders(data, corpus or ())
    read = read_corpora(folders, encoder, work / "blocks", SilentProgress())
    truths, kept = read_truths(folders, read), work / "colde"
    bench = new_bench(read, truths, kept, lambda text: typer.echo(text, err=True))
    lengths = plan_lengths(0, size)
    plan = [one for seed in range(seeds) for one in plan_table(seed, size)]
    plan[len(plan_table(0, size)) : 0] = [one for row in lengths.values() for one in row]
    train_all(bench, plan, None if minutes is None else 60 * minutes)
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
            "quality": quality(bench, seeds, size),
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


def quality(bench: Bench, seeds: int, size: Size) -> dict[str, Any]:
    """Evaluate the models that are kept: means over seeds, rows against the reference."""
    by_row: dict[str, list[tuple[Planned, ...]]] = {}
    for seed in range(seeds):
        plans = {one.row: one for one in plan_table(seed, size) if is_kept(bench, one)}
        for row, one in plans.items():
            by_row.setdefault(row, []).append((one,))
        for row, names in BOTH.items():
            if all(name in plans for name in names):
                by_row.setdefault(row, []).append(tuple(plans[name] for name in names))
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

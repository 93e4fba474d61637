"""What pretraining, the combination of the levels and the length read are worth, on one budget.

The ablations of the SMITH paper (Tables 5 and 7, Figure 4) with the repository's own training, at
a size that two cores carry in half an hour: every model of a part takes the same steps over the
same draws. They train on the training part of each corpus and are judged on its validation part;
nothing is known of test documents but their texts, among which queries search too.

Finished models are kept in a work directory: the same command goes on where it was stopped.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.ablation.cells import Cell, run_cells, summarise
from benchmarks.ablation.data import AblationData, find_folders, read_data
from benchmarks.ablation.parts import (
    Size,
    block_pretraining_cells,
    combination_cells,
    length_cells,
    length_row,
    pretraining_cells,
)
from benchmarks.ablation.table import draw, table
from benchmarks.ablation.training import tokens_read
from benchmarks.common import commit, make_record, write_record
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.progress import SilentProgress

Part = Literal["pretraining", "combinations", "length"]
PARTS: tuple[Part, ...] = ("combinations", "length", "pretraining")  # the slowest last
LOSSES = ("pairs", "links")  # the paper's, and the one that the checkpoint that ships is made with
LENGTH_LOSS = "links"
KEPT = Path(tempfile.gettempdir(), "longmatch-ablation")


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    corpus: Annotated[list[str] | None, typer.Option(help="Only those of this name.")] = None,
    part: Annotated[Part | None, typer.Option(help="Only this ablation.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no model after these.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Models of each kind.")] = 2,
    checkpoint: Annotated[Path, typer.Option(help="Its sentence level.")] = DEFAULT_CHECKPOINT,
    work: Annotated[Path, typer.Option(help="Keeps blocks and finished models' figures.")] = KEPT,
) -> None:
    """Train the models of the ablations that are not kept yet, and judge all on validation."""
    source = commit()
    encoder = OnnxEncoder(load_checkpoint(checkpoint))
    folders = find_folders(data, corpus or ())
    read = read_data(folders, encoder, work / "blocks", SilentProgress())
    seconds = None if minutes is None else 60 * minutes
    wanted = plan([part] if part else PARTS, read, seeds, Size())
    run_cells(wanted, read, work / "models", seconds, lambda text: typer.echo(text, err=True))
    # The record has what former calls kept, too.
    kept = run_cells(plan(PARTS, read, seeds, Size()), read, work / "models", 0, lambda _: None)
    record = make_record(
        "ablation",
        source,
        {
            "corpora": list(read.names),
            "checkpoint": encoder.checkpoint.name,
            "precision": encoder.precision,
            "tokens_read": {length_row(n): tokens_read(read, n) for n in Size().lengths},
        },
        {name: summarise(rows, read) for name, rows in kept.items()},
    )
    typer.echo(table(record))
    path = write_record(record)
    draw(record, path.with_suffix(".svg"))


def plan(parts: Sequence[Part], data: AblationData, seeds: int, size: Size) -> list[Cell]:
    """Plan the models of ablations: all of one seed, then all of the next.

    What is not trained comes with one seed only.
    """
    cells: dict[tuple[str, str, int], Cell] = {}
    for seed in range(seeds):
        for part in parts:
            for cell in _plan(part, data, seed, size):
                cells.setdefault((cell.part, cell.row, cell.seed), cell)
    return list(cells.values())


def _plan(part: Part, data: AblationData, seed: int, size: Size) -> list[Cell]:
    if part == "pretraining":
        over_text = pretraining_cells(data, seed, size)
        return [*block_pretraining_cells(data, seed, size), *over_text]
    if part == "length":
        return length_cells(data, seed, size, LENGTH_LOSS)
    return [cell for loss in LOSSES for cell in combination_cells(data, seed, size, loss)]


if __name__ == "__main__":
    typer.run(main)

"""What pretraining, the combination of levels and the length read contribute, on equal budgets.

The ablations of the SMITH paper (Tables 5 and 7, Figure 4) with the repository's own training, at
a size that two cores handle in half an hour. All models of an ablation take the same steps over the
same batches. They train on the training part of each corpus and are evaluated on its validation
part; test documents contribute only their texts, which queries also search.

Finished models are kept in a work directory: rerun the command to resume.
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
from benchmarks.ablation.table import plot, table
from benchmarks.ablation.training import tokens_read
from benchmarks.common import commit, make_record, write_record
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.progress import SilentProgress

Part = Literal["pretraining", "combinations", "length"]
PARTS: tuple[Part, ...] = ("combinations", "length", "pretraining")  # the slowest last
LOSSES = ("pairs", "links")  # the paper's, and that of the shipped checkpoint
LENGTH_LOSS = "links"
KEPT = Path(tempfile.gettempdir(), "longmatch-ablation")


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    corpus: Annotated[list[str] | None, typer.Option(help="Only corpora of this name.")] = None,
    part: Annotated[Part | None, typer.Option(help="Only this ablation.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Start no model after this many minutes.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Models of each kind.")] = 2,
    checkpoint: Annotated[Path, typer.Option(help="Its sentence level.")] = DEFAULT_CHECKPOINT,
    work: Annotated[Path, typer.Option(help="Keeps blocks and finished models' figures.")] = KEPT,
) -> None:
    """Train the models that are not kept yet, and evaluate all on the validation part."""
    source = commit()
    encoder = OnnxEncoder(load_checkpoint(checkpoint))
    folders = find_folders(data, corpus or ())
    read = read_data(folders, encoder, work / "blocks", SilentProgress())
    seconds = None if minutes is None else 60 * minutes
    cells = plan([part] if part else PARTS, read, seeds, Size())
    run_cells(cells, read, work / "models", seconds, lambda text: typer.echo(text, err=True))
    # The record includes results kept by earlier calls.
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
    plot(record, path.with_suffix(".svg"))


def plan(parts: Sequence[Part], data: AblationData, seeds: int, size: Size) -> list[Cell]:
    """Plan the models of ablations: all of one seed, then all of the next.

    Untrained models are planned for one seed only.
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

"""Make the checkpoints that are measured on a GPU, with fp16 graphs and without their weights.

    python -m benchmarks.gpu.checkpoints -o FOLDER

makes two: the one that ships, and SMITH of the paper's size with random weights, which is as fast
as a trained one. It takes the extra `train`; the folders serve without it.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import ROOT
from encoder.checkpoint import DEFAULT_CHECKPOINT, TOKENIZER, WEIGHTS, load_checkpoint
from encoder.errors import CheckpointError
from encoder.export.create import Recipe, create_checkpoint
from encoder.export.export import export_checkpoint
from encoder.export.recipe_file import read_recipe_file

PAPER = ROOT / "encoder" / "recipes" / "smith-paper.toml"


def main(
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder for them.")],
    recipe: Annotated[list[Path], typer.Option(help="To create; repeatable.")] = [PAPER],  # noqa: B006
    checkpoint: Annotated[list[Path], typer.Option(help="To export; repeatable.")] = [  # noqa: B006
        DEFAULT_CHECKPOINT
    ],
    precision: Annotated[list[str], typer.Option(help="Of the graphs; repeatable.")] = ["fp16"],  # noqa: B006
) -> None:
    """Make checkpoints with graphs in fp16."""
    output.mkdir(parents=True, exist_ok=True)
    for one in recipe:
        typer.echo(make(one, output, precision))
    for folder in checkpoint:
        typer.echo(export(folder, output / folder.resolve().name, precision))


def make(recipe: Path, output: Path, precisions: list[str]) -> Path:
    """Create a checkpoint of a recipe that begins at random, with the tokenizer that ships."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "start")
        start.mkdir()
        shutil.copyfile(DEFAULT_CHECKPOINT / TOKENIZER, start / TOKENIZER)
        parsed = read_recipe_file(recipe, Recipe, CheckpointError)
        made = create_checkpoint(parsed, str(start), Path(folder, parsed.name))
        return export(made.directory, output / parsed.name, precisions)


def export(source: Path, target: Path, precisions: list[str]) -> Path:
    """Export a checkpoint that has its weights into a new folder, which has none."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        copy = Path(folder, "checkpoint")
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("training"))
        for other in load_checkpoint(copy).precisions:
            shutil.rmtree(copy / other)
        export_checkpoint(load_checkpoint(copy), precisions)
        (copy / WEIGHTS).unlink()
        copy.rename(target)
    return target


if __name__ == "__main__":
    typer.run(main)

"""Commands that make checkpoints: create-checkpoint, export. They need the extra `train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.errors import EncoderError
from service.commands.common import console

if TYPE_CHECKING:
    from types import ModuleType

PrecisionsOption = Annotated[
    list[str], typer.Option("--precision", help="int8, fp16 or fp32; may be given again.")
]


def create_checkpoint(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str,
        typer.Option(help="Folder or hub name of a BERT checkpoint: tokenizer, sentence level."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
    seed: Annotated[int, typer.Option(help="Of the weights that begin at random.")] = 0,
) -> None:
    """Make a checkpoint from a recipe and export it."""
    create, _ = _training_modules()
    checkpoint = create.create_checkpoint(create.read_recipe(recipe), bert, output, seed=seed)
    _export(checkpoint, precision)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint directory with its weights.")],
    precision: PrecisionsOption,
) -> None:
    """Export a checkpoint to ONNX; refused when a graph does not compute what the model does."""
    _training_modules()
    _export(load_checkpoint(checkpoint), precision)


def _export(checkpoint: Checkpoint, precisions: list[str]) -> None:
    _, export_module = _training_modules()
    for precision, parity in export_module.export_checkpoint(checkpoint, precisions).items():
        console.print(
            f"{precision}: cosine to the model at least {parity.block_cosine:.5f} for blocks, "
            f"{parity.document_cosine:.5f} for documents"
        )


def _training_modules() -> "tuple[ModuleType, ModuleType]":
    try:
        from encoder import create, export  # torch is not there where Longmatch only serves
    except ImportError as error:
        raise EncoderError(
            f"making checkpoints needs the extra 'train': pip install 'longmatch[train]' ({error})"
        ) from error
    return create, export

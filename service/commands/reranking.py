"""Commands that make rerankers: create-reranker, train-reranker. They need the extra `train`."""

from pathlib import Path
from typing import Annotated

import typer

from encoder.errors import EncoderError
from encoder.reranker_checkpoint import find_reranker, load_reranker_checkpoint
from index.rerank_job import train_reranker
from index.training_files import RerankJob, given_files
from service.commands.checkpoints import PrecisionsOption
from service.commands.common import INTERRUPTED, console
from service.commands.training import recipe_file
from service.console import observing
from service.training_console import observing_training


def create_reranker(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str, typer.Option(help="Folder or hub name of a BERT checkpoint: weights and tokenizer.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    seed: Annotated[int, typer.Option(help="Of the weights that begin at random.")] = 0,
) -> None:
    """Make a reranker that was not trained yet, without a graph."""
    _require_torch()
    from encoder import create_reranker as making

    making.create_reranker(making.read_reranker_recipe(recipe), bert, output, seed=seed)


def train_reranker_command(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one in encoder/recipes/training.")
    ],
    start: Annotated[Path, typer.Option(help="The reranker to start from, with its weights.")],
    corpus: Annotated[
        list[Path],
        typer.Option(help="A corpus; may be given again. Files beside corpus.jsonl are found."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    work: Annotated[
        Path | None, typer.Option(help="For what is computed on the way; <output>.work.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Of training, then the best so far is kept.")
    ] = None,
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
) -> None:
    """Train a reranker on own documents; killed or stopped, the same command goes on."""
    _require_torch()
    if output.exists() or not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"{output} is there, or its folder is not", param_hint="--output")
    job = RerankJob(
        recipe=recipe_file(recipe),
        start=load_reranker_checkpoint(find_reranker(start)),
        files=given_files(corpus, None, [], None),
        output=output,
        work=work or output.with_name(output.name + ".work"),
        precisions=precision,
        seconds=None if minutes is None else 60 * minutes,
    )
    try:
        with observing(console) as observer, observing_training(console) as training_observer:
            train_reranker(job, observer, training_observer)
    except KeyboardInterrupt:
        console.print("stopped: the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    console.print(f"{output}: written")


def _require_torch() -> None:
    try:
        import encoder.training.loop  # noqa: F401  torch is not there where Longmatch only serves
    except ImportError as error:
        raise EncoderError(
            f"making rerankers needs the extra 'train': pip install 'longmatch[train]' ({error})"
        ) from error

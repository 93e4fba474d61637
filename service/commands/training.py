"""The command that trains on a user's own documents: train. It needs the extra `train`."""

from pathlib import Path
from typing import Annotated

import typer

from encoder.errors import EncoderError, QualityError
from index.quality_gate import DOCUMENTS, sample_stdlib
from index.training_data import describe
from index.training_files import EncoderJob, given_files
from index.training_job import prepare_data, prepare_sources, run_training
from index.training_report import write_output
from service.commands.checkpoints import GateDocumentsOption, PrecisionsOption, quality_gate
from service.commands.common import (
    INTERRUPTED,
    CheckpointOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
)
from service.console import observing
from service.training_console import observing_training

RECIPES = Path(__file__).parents[2] / "encoder" / "recipes" / "training"


def train(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one in encoder/recipes/training.")
    ],
    corpus: Annotated[
        list[Path],
        typer.Option(help="A corpus; may be given again. Files beside corpus.jsonl are found."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The checkpoint to write.")],
    qrels: Annotated[Path | None, typer.Option(help="Links between its documents.")] = None,
    pairs: Annotated[
        list[Path] | None, typer.Option(help="Labelled pairs; may be given again.")
    ] = None,
    splits: Annotated[Path | None, typer.Option(help="id TAB train|valid|test.")] = None,
    work: Annotated[
        Path | None, typer.Option(help="For what is computed on the way; <output>.work.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Of training, then the best so far is kept.")
    ] = None,
    checkpoint: CheckpointOption = None,
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
    gate_documents: GateDocumentsOption = DOCUMENTS,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Train a checkpoint on own documents; killed or stopped, the same command goes on."""
    _require_torch()
    if not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"{output.parent} is not a folder", param_hint="--output")
    loaded = load(checkpoint, None, provider, threads)
    job = EncoderJob(
        recipe=recipe_file(recipe),
        start=loaded.checkpoint,
        files=given_files(corpus, qrels, pairs or [], splits),
        output=output,
        work=work or output.with_name(output.name + ".work"),
        precisions=precision,
        steps=steps,
        seconds=None if minutes is None else 60 * minutes,
    )
    try:
        with observing(console) as observer:
            data = prepare_data(job, loaded.encoder, observer)
        for one in data:
            console.print(describe(one.found))
        with observing(console) as observer:
            sources = prepare_sources(job, data, observer)
        with observing_training(console) as training_observer:
            trained = run_training(job, data, sources, training_observer)
        write_output(job, trained, quality_gate(lambda: sample_stdlib(gate_documents)))
    except KeyboardInterrupt:
        console.print("stopped: the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    except QualityError as error:
        raise QualityError(
            f"{error}. Nothing of the training is lost: the same command with --precision fp32 "
            "ends with a checkpoint"
        ) from error
    report = trained.report
    console.print(
        f"{output}: {report.figure}: {report.before:.4f} before, {report.best:.4f} after step "
        f"{report.best_step} of {report.steps}"
    )


def recipe_file(recipe: str) -> Path:
    """Return a recipe's file; a bare name is that of a shipped one."""
    shipped = RECIPES / f"{recipe}.toml"
    return shipped if not Path(recipe).exists() and shipped.is_file() else Path(recipe)


def _require_torch() -> None:
    try:
        import encoder.training.loop  # noqa: F401  torch is not there where Longmatch only serves
    except ImportError as error:
        raise EncoderError(
            f"training needs the extra 'train': pip install 'longmatch[train]' ({error})"
        ) from error

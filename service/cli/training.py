"""The commands that make and train models; they need the extra `train`."""

from pathlib import Path
from typing import Annotated

import typer

from encoder.errors import EncoderError, QualityError
from encoder.reranker.checkpoint import find_reranker, load_reranker_checkpoint
from evaluation.quality_gate import DOCUMENTS, sample_stdlib
from service.cli.checkpoints import GateDocumentsOption, PrecisionsOption, quality_gate
from service.cli.options import (
    INTERRUPTED,
    CheckpointOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
)
from service.cli.progress import show_progress, show_training
from training.data.corpus import describe
from training.data.files import EncoderJob, RerankJob, given_files
from training.jobs.output import write_output
from training.jobs.train_encoder import prepare_data, prepare_sources, run_training
from training.jobs.train_reranker import train_reranker
from training.recipe import RECIPES


def create_reranker(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str, typer.Option(help="Folder or hub name of a BERT checkpoint: weights and tokenizer.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    seed: Annotated[int, typer.Option(help="Of the random initial weights.")] = 0,
) -> None:
    """Make an untrained reranker, without a graph."""
    _require_torch_for_rerankers()
    from encoder.export import create as making

    making.create_reranker(making.read_reranker_recipe(recipe), bert, output, seed=seed)


def train_reranker_command(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one in training/recipes.")
    ],
    start: Annotated[Path, typer.Option(help="The reranker to start from, with its weights.")],
    corpus: Annotated[
        list[Path],
        typer.Option(help="A corpus; may be repeated. Files beside corpus.jsonl are found."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    work: Annotated[
        Path | None, typer.Option(help="For intermediate results; by default <output>.work.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Of training; then the best weights are kept."),
    ] = None,
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
) -> None:
    """Train a reranker on your documents; the same command resumes an interrupted run."""
    _require_torch_for_rerankers()
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
        with show_progress(console) as progress, show_training(console) as training_progress:
            train_reranker(job, progress, training_progress)
    except KeyboardInterrupt:
        console.print("stopped: the same command resumes from here")
        raise typer.Exit(INTERRUPTED) from None
    console.print(f"{output}: written")


def _require_torch_for_rerankers() -> None:
    try:
        import training.loop  # noqa: F401  torch is not installed where Longmatch only serves
    except ImportError as error:
        raise EncoderError(
            f"making rerankers needs the extra 'train': pip install 'longmatch[train]' ({error})"
        ) from error


def train(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one in training/recipes.")
    ],
    corpus: Annotated[
        list[Path],
        typer.Option(help="A corpus; may be repeated. Files beside corpus.jsonl are found."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The checkpoint to write.")],
    qrels: Annotated[Path | None, typer.Option(help="Links between its documents.")] = None,
    pairs: Annotated[
        list[Path] | None, typer.Option(help="Labelled pairs; may be repeated.")
    ] = None,
    splits: Annotated[Path | None, typer.Option(help="id TAB train|valid|test.")] = None,
    work: Annotated[
        Path | None, typer.Option(help="For intermediate results; by default <output>.work.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Overrides the recipe.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Of training; then the best weights are kept."),
    ] = None,
    checkpoint: CheckpointOption = None,
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
    gate_documents: GateDocumentsOption = DOCUMENTS,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Train a checkpoint on your documents; the same command resumes an interrupted run."""
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
        with show_progress(console) as progress:
            data = prepare_data(job, loaded.encoder, progress)
        for one in data:
            console.print(describe(one.found))
        with show_progress(console) as progress:
            sources = prepare_sources(job, data, progress)
        with show_training(console) as training_progress:
            trained = run_training(job, data, sources, training_progress)
        write_output(job, trained, quality_gate(lambda: sample_stdlib(gate_documents)))
    except KeyboardInterrupt:
        console.print("stopped: the same command resumes from here")
        raise typer.Exit(INTERRUPTED) from None
    except QualityError as error:
        raise QualityError(
            f"{error}. The training is not lost: the same command with --precision fp32 "
            "writes a checkpoint"
        ) from error
    report = trained.report
    console.print(
        f"{output}: {report.figure}: {report.before:.4f} before, {report.best:.4f} after step "
        f"{report.best_step} of {report.steps}"
    )


def recipe_file(recipe: str) -> Path:
    """Return the file of a recipe; a bare name is that of a shipped one."""
    shipped = RECIPES / f"{recipe}.toml"
    return shipped if not Path(recipe).exists() and shipped.is_file() else Path(recipe)


def _require_torch() -> None:
    try:
        import training.loop  # noqa: F401  torch is not installed where Longmatch only serves
    except ImportError as error:
        raise EncoderError(
            f"training needs the extra 'train': pip install 'longmatch[train]' ({error})"
        ) from error

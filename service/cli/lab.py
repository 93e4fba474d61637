"""`longmatch lab`: checkpoints are made, trained and exported; data sets become corpora."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from encoder.calibration import Calibration, KindCalibration, write_calibration
from encoder.checkpoint import PRECISIONS, Checkpoint, read_weights
from encoder.errors import QualityError
from encoder.reranker.checkpoint import (
    RERANKER_PRECISIONS,
    RerankerCheckpoint,
    load_reranker_checkpoint,
)
from evaluation.fitting.calibration import ScoredPairs, fit_kind, read_scored_pairs
from evaluation.judgements import read_pairs, read_qrels, read_splits
from evaluation.quality_gate import Quality, measure_quality, read_stdlib
from index.embed import embed_corpus, write_embedded_corpus
from index.optional_dependencies import require_extra
from index.search.records import Mode
from service.cli import checks, opening, options
from service.cli.checks import OptionError, read_option
from service.cli.opening import load
from service.cli.options import INPUT_SKIPPED, OK, console, results, resumable, say
from service.cli.progress import show_progress, show_training
from service.cli.tune import check_enough, open_store, read_judged
from training.data.corpus import describe
from training.data.feedback_corpus import MIN_QUERIES, write_feedback_corpus
from training.data.files import (
    CorpusFiles,
    EncoderJob,
    RerankJob,
    Start,
    TrainingJob,
    find_corpus_files,
    given_files,
    read_recipe,
)
from training.data.pair_files import check_held_out, read_labelled_pairs
from training.datasets.convert import DATASETS, convert_dataset
from training.recipe import RECIPES, TrainingRecipe, pretrains

if TYPE_CHECKING:
    from training.export.export import Gate

StartOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LONGMATCH_ENCODER",
        help="The checkpoint to start from, with its weights; by default best, of an encoder.",
    ),
]

lab = typer.Typer(
    help="Make, train and export checkpoints; make corpora of published data sets.",
    no_args_is_help=True,
    add_completion=False,
)


@lab.command("create-checkpoint")
def create_checkpoint(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str,
        typer.Option(help="Folder or hub name of a BERT checkpoint: tokenizer, sentence level."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    precision: options.PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
) -> None:
    """Create an untrained encoder or reranker, as the recipe says.

    An encoder is exported without a quality gate; a reranker has no graph before it is trained.
    """
    require_extra("train", "lab create-checkpoint")
    from training.export import create  # imports torch

    checks.output_folder(output, "--output")
    checks.precisions(precision)
    if create.is_for_reranker(recipe):
        reranker = read_option("RECIPE", create.RerankerRecipe.read, recipe)
        create.create_reranker(reranker, bert, output)
        return
    read = read_option("RECIPE", create.Recipe.read, recipe)
    _export(create.create_checkpoint(read, bert, output), precision)


@lab.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint directory with its weights.")],
    precision: options.PrecisionsOption,
) -> None:
    """Export a checkpoint to ONNX.

    Fails if a graph does not compute what the model does, or if int8 or fp16 keep less than 98 % of
    the 10 nearest neighbours of fp32 in Python's documentation.
    """
    require_extra("train", "lab export")
    opened = checks.open_checkpoint(checkpoint, option="CHECKPOINT")
    read_option("CHECKPOINT", read_weights, checkpoint)
    checks.output_folder(checkpoint, "CHECKPOINT")
    checks.precisions(precision)
    _export(opened, precision, quality_gate)


@lab.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one in training/recipes.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The checkpoint to write.")],
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="A corpus; may be repeated. qrels, pairs and splits beside corpus.jsonl are found."
        ),
    ] = None,
    feedback: Annotated[
        Path | None,
        typer.Option(
            help="A data directory: learn from the feedback on its matches, with its documents. A "
            "server may be running."
        ),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Links between documents, as judgements.")
    ] = None,
    pairs: Annotated[
        list[Path] | None, typer.Option(help="Labelled pairs; may be repeated.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(help="Lines of id, tab, and train, valid or test.")
    ] = None,
    allow_shared_documents: options.SharedOption = False,
    work: Annotated[
        Path | None,
        typer.Option(help="A folder for intermediate results; by default <output>.work."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of steps, instead of the recipe's.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Time limit of training, after which the best so far is kept."),
    ] = None,
    checkpoint: StartOption = None,
    precision: options.PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
) -> None:
    """Train an encoder or a reranker, as the recipe says, on your documents.

    If it is stopped, run the same command again to resume.
    """
    require_extra("train", "lab train")
    checks.new_path(output)
    shipped = RECIPES / f"{recipe}.toml"
    file = shipped if not Path(recipe).exists() and shipped.is_file() else Path(recipe)
    objectives = read_option("RECIPE", TrainingRecipe.read, file).objectives
    for_reranker = any(objective.kind == "rerank" for objective in objectives)
    checks.precisions(precision, RERANKER_PRECISIONS if for_reranker else PRECISIONS)
    if for_reranker:
        if checkpoint is None:
            raise OptionError("--checkpoint", "is missing: the reranker to start from")
        start: Checkpoint | RerankerCheckpoint = read_option(
            "--checkpoint", load_reranker_checkpoint, checkpoint
        )
    else:
        start = checks.open_checkpoint(checkpoint, option="--checkpoint")
    read_option("--checkpoint", read_weights, start.directory)
    files = _find_files(corpus or [], qrels, pairs or [], splits)
    common: dict[str, Any] = {
        "recipe": file,
        "output": output,
        "work": work or output.with_name(output.name + ".work"),
        "precisions": precision,
        "steps": steps,
        "seconds": None if minutes is None else 60 * minutes,
        "allow_shared": allow_shared_documents,
    }
    try:
        with resumable():
            if isinstance(start, RerankerCheckpoint):
                _train_reranker(_checked(RerankJob(start=start, files=files, **common), feedback))
            else:
                _train_encoder(_checked(EncoderJob(start=start, files=files, **common), feedback))
    except QualityError as error:
        raise QualityError(
            f"{error}. The training is kept: the same command with --precision fp32 writes a "
            "checkpoint"
        ) from error


@lab.command("fit-calibration")
def fit_calibration(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint directory to write into.")],
    data: Annotated[
        Path,
        typer.Option(
            help="A folder of folders with corpus.jsonl.gz, qrels.tsv and splits.tsv each."
        ),
    ],
    blocks: Annotated[
        Path, typer.Option(help="A folder that keeps their block vectors; made if it is missing.")
    ],
) -> None:
    """Fit match probabilities to judged corpora and write them into a checkpoint.

    For every mode, to queries of split valid: their relevant documents, and as many drawn at
    random. Each corpus counts the same. Use corpora that the checkpoint was not trained on, the
    more the better; the printed errors are each of a map that was fitted without the corpus.
    """
    require_extra("evaluate", "lab fit-calibration")
    known = checks.open_checkpoint(checkpoint, option="CHECKPOINT")
    checks.output_folder(checkpoint, "CHECKPOINT")
    folders = sorted(path.parent for path in data.glob("*/qrels.tsv"))
    if len(folders) < 2:
        raise OptionError("--data", f"{data}: holds {len(folders)} corpora with qrels.tsv, not 2")
    encoder = load(str(known.directory))
    scored: list[Mapping[Mode, ScoredPairs]] = []
    for folder in folders:
        with show_progress(console) as progress:
            scored.append(read_scored_pairs(folder, blocks / folder.name, encoder, progress)[2])
    fitted: dict[str, KindCalibration] = {
        mode: fit_kind([pairs[mode] for pairs in scored]) for mode in scored[0]
    }
    calibration = Calibration(known.fingerprint, fitted)
    write_calibration(known, calibration)
    names = [folder.name for folder in folders]
    table = Table("error without the corpus", *names, "all", "of a perfect map", box=None)
    for mode, kind in fitted.items():
        errors = [kind.by_corpus[name] for name in names]
        errors += [kind.error.equal_mass, kind.error.equal_mass_of_perfect]
        table.add_row(mode, *(f"{error:.3f}" for error in errors))
    results.print(table)
    console.print(f"{checkpoint}: calibration {calibration.version}")


@lab.command()
def embed(
    corpus: options.CorpusArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    reading_share: options.ReadingShareOption = None,
    encoder: options.EncoderOption = None,
) -> None:
    """Write the document vectors of a corpus: ids, vectors [N, D], tokens, tokens_read."""
    opening.check_corpus(corpus)
    checks.output_file(output)
    loaded = load(encoder, reading_share=reading_share)
    with show_progress(console) as progress:
        embedded = embed_corpus(corpus, loaded, progress)
    write_embedded_corpus(output, embedded)
    console.print(f"{output}: {len(embedded.ids)} documents, {embedded.skipped} skipped")
    raise typer.Exit(INPUT_SKIPPED if embedded.skipped else OK)


@lab.command()
def dataset(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    source: Annotated[Path, typer.Argument(help="The folder or file as it is distributed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    accept_licence: Annotated[
        bool,
        typer.Option(
            "--accept-licence",
            help="You have made the agreement that the distributor of this data set requires.",
        ),
    ] = False,
) -> None:
    """Make a corpus with pairs or judgements of a published data set, as it is distributed."""
    known = DATASETS.get(name)
    if known is None:
        raise OptionError("NAME", f"{name!r} is none of {', '.join(DATASETS)}")
    checks.new_path(output)
    if known.agreement and not accept_licence:
        raise OptionError("--accept-licence", f"is needed for {name}: {known.agreement}")
    with show_progress(console) as progress:
        counts = read_option("SOURCE", convert_dataset, name, source, output, progress)
    pairs = ", ".join(
        f"{number['matching']} of {number['all']} {part} pairs match"
        for part, number in counts["pairs"].items()
    )
    written = [f"{counts['documents']} documents", f"{counts['judgements']} judgements", pairs]
    console.print(f"{output}: {', '.join(filter(None, written))}")
    shared = counts["documents in pairs of two parts"]
    if shared:
        console.print(
            f"{shared} documents are in the pairs of two parts, as in the papers: train with "
            "--allow-shared-documents"
        )
    for reason, number in counts["left out"].items():
        console.print(f"left out: {number} {reason}")
    say(f"licence of the data: {counts['licence']}")


def _train_encoder(job: EncoderJob) -> None:
    from training.data.sampling import find_sources
    from training.jobs.fit_search import fit_search
    from training.jobs.output import write_output  # imports torch
    from training.jobs.train_encoder import prepare_data, run_training

    encoder = load(str(job.start.directory))
    with show_progress(console) as progress:
        data = prepare_data(job, encoder, progress)
    for corpus in data:
        console.print(describe(corpus.found))
    with show_progress(console) as progress:
        sources = find_sources(read_recipe(job), job.start, data, progress)
    with show_training(console) as training_progress:
        trained = run_training(job, data, sources, training_progress)
    with show_progress(console) as progress:
        report = write_output(
            job,
            trained,
            quality_gate,
            lambda made: fit_search(made, job, encoder, data, progress),
        )
    seen = " (optimistic: training may have seen the documents of validation)"
    console.print(
        f"{job.output}: {report.figure}: {report.before:.4f} before, {report.best:.4f} after step "
        f"{report.best_step} of {report.steps}{seen if report.shared_documents else ''}"
    )
    if report.search:
        before, after = report.search.before, report.search.after
        modes = [
            f"{mode} {before[mode]:.4f} -> {after[mode]:.4f}" for mode in ("semantic", "hybrid")
        ]
        console.print(f"Search, nDCG@10 of {report.search.queries} queries: {', '.join(modes)}")


def _train_reranker(job: RerankJob) -> None:
    from training.jobs.train_reranker import train_reranker  # imports torch

    with show_progress(console) as progress, show_training(console) as training_progress:
        train_reranker(job, progress, training_progress)
    console.print(f"{job.output}: written")


def quality_gate(staged: Checkpoint, smaller: Sequence[str]) -> Mapping[str, Quality]:
    """Measure what smaller precisions keep, with progress and result on the console."""
    documents = read_stdlib()
    with show_progress(console) as progress:
        qualities = measure_quality(staged, smaller, documents, progress)
    for name, quality in qualities.items():
        console.print(
            f"{name}: keeps {quality.neighbours:.2%} of the neighbours of fp32 on "
            f"{quality.documents} documents of Python's library, {quality.tokens:,} tokens"
        )
    return qualities


def _export(checkpoint: Checkpoint, precisions: list[str], gate: "Gate | None" = None) -> None:
    from training.export.export import export_checkpoint  # imports torch

    parities = export_checkpoint(checkpoint, precisions, gate)
    for precision, parity in parities.items():
        console.print(
            f"{precision}: cosine to the model at least {parity.block_cosine:.5f} for blocks, "
            f"{parity.document_cosine:.5f} for documents"
        )


def _find_files(
    corpora: list[Path], qrels: Path | None, pairs: list[Path], splits: Path | None
) -> list[CorpusFiles]:
    """Find the files of each corpus, and check that all of them can be read."""
    found = read_option("--corpus", given_files, corpora, qrels, pairs, splits)
    for files in found:
        opening.check_corpus(files.corpus, "--corpus")
        if files.qrels:
            read_option("--qrels" if qrels else "--corpus", read_qrels, files.qrels)
        if files.splits:
            read_option("--splits" if splits else "--corpus", read_splits, files.splits)
        for path in files.pairs:
            read_option("--pairs" if pairs else "--corpus", read_pairs, path)
    return found


def _checked(job: TrainingJob[Start], feedback: Path | None) -> TrainingJob[Start]:
    """Check that a recipe can be followed with the files of a job; add those of feedback."""
    if not job.files and feedback is None:
        raise OptionError("--corpus", "is missing: name a corpus, or a --feedback")
    if feedback is not None:
        opening.check_data_directory(feedback, "--feedback")
        check_enough(feedback, MIN_QUERIES, "--feedback")
    checks.output_folder(job.work, "--work")
    recipe = read_option("RECIPE", read_recipe, job)
    if feedback is not None:
        job = replace(job, files=[*job.files, _feedback_files(feedback, job.work)])
    _check_files(job, recipe)
    return job


def _feedback_files(data: Path, work: Path) -> CorpusFiles:
    """Return the corpus of the feedback of a data directory; written once, so that runs resume."""
    folder = work / "feedback"
    if not folder.exists():
        work.mkdir(parents=True, exist_ok=True)
        with closing(open_store(data)) as store:
            judged = read_judged(data, store)
            counts = read_option("--feedback", write_feedback_corpus, folder, store, judged)
        queries = ", ".join(f"{number} {part}" for part, number in counts["queries"].items())
        console.print(f"{folder}: {counts['documents']} documents, queries: {queries}")
    return find_corpus_files(folder)


def _check_files(job: TrainingJob[Start], recipe: TrainingRecipe) -> None:
    kinds = {objective.kind for objective in recipe.objectives}
    for files in job.files:
        read_option("--corpus", read_labelled_pairs, files, allow_shared=job.allow_shared)
    if pretrains(recipe):
        read_option("--corpus", check_held_out, job.files)
    if "links" in kinds and not any(files.qrels for files in job.files):
        raise OptionError("--corpus", "the recipe learns from links, and no corpus has any")
    if "pairs" in kinds and not any(files.pairs for files in job.files):
        raise OptionError("--corpus", "the recipe learns from pairs, and no corpus has any")

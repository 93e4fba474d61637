"""Commands that train on a user's documents, and make-corpus, which makes corpora for them."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from encoder.errors import QualityError
from encoder.reranker.checkpoint import RERANKER_PRECISIONS
from evaluation.judgements import read_pairs, read_qrels, read_splits
from evaluation.quality_gate import DOCUMENTS, sample_stdlib
from index.errors import CorpusError
from index.optional_dependencies import require_extra
from service.cli.checkpoints import GateDocumentsOption, PrecisionsOption, quality_gate
from service.cli.checks import (
    OptionError,
    check_new_path,
    check_output_folder,
    check_precisions,
    check_weights,
    open_checkpoint,
    open_reranker_checkpoint,
    read_option,
)
from service.cli.feedback.judged import check_enough, open_store, read_judged
from service.cli.indexing.checks import check_corpus, check_data_directory
from service.cli.opening import load
from service.cli.options import (
    INTERRUPTED,
    RESUMABLE,
    CheckpointOption,
    ProviderOption,
    SharedOption,
    ThreadsOption,
    console,
)
from service.cli.progress import show_progress, show_training
from training.data.corpus import describe
from training.data.files import (
    CorpusFiles,
    EncoderJob,
    RerankJob,
    Start,
    TrainingJob,
    check_classes,
    find_corpus_files,
    given_files,
    read_recipe,
)
from training.data.pair_files import check_held_out, check_pair_files
from training.data.rerank_corpus import check_rerank_files
from training.errors import TrainingRecipeError
from training.pretraining.recipes import pretrains
from training.recipe import RECIPES, TrainingRecipe
from training.sources.feedback_corpus import MIN_QUERIES, write_feedback_corpus
from training.sources.make_corpus import KINDS, check_sources
from training.sources.make_corpus import make_corpus as make_corpus_of
from training.sources.selection import CorpusOptions

_DEFAULTS = CorpusOptions()

RecipeArgument = Annotated[
    str, typer.Argument(help="A TOML file, or the name of one in training/recipes.")
]
CorporaOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="A corpus; may be repeated. qrels, pairs and splits beside corpus.jsonl are found."
    ),
]
FeedbackOption = Annotated[
    Path | None,
    typer.Option(
        help="A data directory: learn from the feedback on its matches, with its documents. A "
        "server may be running."
    ),
]
QrelsOption = Annotated[Path | None, typer.Option(help="Links between documents, as judgements.")]
PairsOption = Annotated[list[Path] | None, typer.Option(help="Labelled pairs; may be repeated.")]
SplitsOption = Annotated[
    Path | None, typer.Option(help="Lines of id, tab, and train, valid or test.")
]
WorkOption = Annotated[
    Path | None,
    typer.Option(help="A folder for intermediate results; by default <output>.work."),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(min=0, help="Time limit of training, after which the best so far is kept."),
]
_REPORTED = ("semantic", "hybrid")  # modes of search
OPTIMISTIC = " (optimistic: training may have seen the documents of validation)"


def create_reranker(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str, typer.Option(help="Folder or hub name of a BERT checkpoint: weights and tokenizer.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    seed: Annotated[int, typer.Option(help="Of the weights that are initialised at random.")] = 0,
) -> None:
    """Create an untrained reranker, without a graph."""
    require_extra("train", "create-reranker")
    from encoder.export import create  # imports torch

    check_output_folder(output, "--output")
    read = read_option("RECIPE", create.read_reranker_recipe, recipe)
    create.create_reranker(read, bert, output, seed=seed)


def train_reranker_command(
    recipe: RecipeArgument,
    start: Annotated[Path, typer.Option(help="The reranker to start from, with its weights.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    corpus: CorporaOption = None,
    feedback: FeedbackOption = None,
    qrels: QrelsOption = None,
    pairs: PairsOption = None,
    splits: SplitsOption = None,
    allow_shared_documents: SharedOption = False,
    work: WorkOption = None,
    minutes: MinutesOption = None,
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
) -> None:
    """Train a reranker on your documents; if stopped, run the same command again to resume."""
    require_extra("train", "train-reranker")
    from training.jobs.train_reranker import train_reranker  # imports torch

    check_new_path(output)
    check_precisions(precision, RERANKER_PRECISIONS)
    opened = open_reranker_checkpoint(start, "--start")
    check_weights(opened.directory, "--start")
    job = RerankJob(
        recipe=recipe_file(recipe),
        start=opened,
        files=_find_files(corpus or [], qrels, pairs or [], splits),
        output=output,
        work=work or output.with_name(output.name + ".work"),
        precisions=precision,
        seconds=None if minutes is None else 60 * minutes,
        allow_shared=allow_shared_documents,
    )
    job = _checked(job, feedback)
    try:
        with show_progress(console) as progress, show_training(console) as training_progress:
            train_reranker(job, progress, training_progress)
    except KeyboardInterrupt:
        console.print(RESUMABLE)
        raise typer.Exit(INTERRUPTED) from None
    console.print(f"{output}: written")


def train(
    recipe: RecipeArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The checkpoint to write.")],
    corpus: CorporaOption = None,
    feedback: FeedbackOption = None,
    qrels: QrelsOption = None,
    pairs: PairsOption = None,
    splits: SplitsOption = None,
    allow_shared_documents: SharedOption = False,
    work: WorkOption = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of steps, instead of the recipe's.")
    ] = None,
    minutes: MinutesOption = None,
    checkpoint: CheckpointOption = None,
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
    gate_documents: GateDocumentsOption = DOCUMENTS,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Train a checkpoint on your documents; if stopped, run the same command again to resume."""
    require_extra("train", "train")
    from training.jobs.fit_search import fit_search
    from training.jobs.output import write_output  # imports torch
    from training.jobs.train_encoder import prepare_data, prepare_sources, run_training

    check_new_path(output)
    check_precisions(precision)
    start = open_checkpoint(checkpoint, None, provider)
    check_weights(start.directory, "--checkpoint")
    job = EncoderJob(
        recipe=recipe_file(recipe),
        start=start,
        files=_find_files(corpus or [], qrels, pairs or [], splits),
        output=output,
        work=work or output.with_name(output.name + ".work"),
        precisions=precision,
        steps=steps,
        seconds=None if minutes is None else 60 * minutes,
        allow_shared=allow_shared_documents,
    )
    job = _checked(job, feedback)
    loaded = load(checkpoint, None, provider, threads)
    try:
        with show_progress(console) as progress:
            data = prepare_data(job, loaded.encoder, progress)
        for one in data:
            console.print(describe(one.found))
        with show_progress(console) as progress:
            sources = prepare_sources(job, data, progress)
        with show_training(console) as training_progress:
            trained = run_training(job, data, sources, training_progress)
        gate = quality_gate(lambda: sample_stdlib(gate_documents))
        with show_progress(console) as progress:
            report = write_output(
                job,
                trained,
                gate,
                lambda made: fit_search(made, job, loaded.encoder, data, progress),
            )
    except KeyboardInterrupt:
        console.print(RESUMABLE)
        raise typer.Exit(INTERRUPTED) from None
    except QualityError as error:
        raise QualityError(
            f"{error}. The training is kept: the same command with --precision fp32 writes a "
            "checkpoint"
        ) from error
    console.print(
        f"{output}: {report.figure}: {report.before:.4f} before, {report.best:.4f} after step "
        f"{report.best_step} of {report.steps}{OPTIMISTIC if report.shared_documents else ''}"
    )
    if report.search:
        before, after = report.search.before, report.search.after
        modes = [f"{mode} {before[mode]:.4f} -> {after[mode]:.4f}" for mode in _REPORTED]
        console.print(f"Search, nDCG@10 of {report.search.queries} queries: {', '.join(modes)}")


def make_corpus(
    kind: Annotated[str, typer.Argument(help="titles, manpages or html.")],
    sources: Annotated[
        list[Path],
        typer.Argument(help="Corpora for titles; else .deb files, folders of them, or of pages."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    documents: Annotated[
        int | None,
        typer.Option(min=2, help="Keep so many: those with the most links among each other."),
    ] = _DEFAULTS.documents,
    min_words: Annotated[
        int, typer.Option(min=1, help="Leave out documents with fewer words.")
    ] = _DEFAULTS.min_words,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Cut texts after so many words.")
    ] = _DEFAULTS.max_words,
    max_named: Annotated[
        int, typer.Option(min=1, help="A document that more others link to is no target.")
    ] = _DEFAULTS.max_named,
    mask_titles: Annotated[
        float, typer.Option(min=0, max=1, help="Share of links whose names are removed from texts.")
    ] = _DEFAULTS.mask_titles,
    held_out: Annotated[
        float,
        typer.Option(min=0, max=0.4, help="Share of validation documents; as many for testing."),
    ] = _DEFAULTS.held_out,
    seed: Annotated[int, typer.Option(help="Of splits and masks.")] = _DEFAULTS.seed,
) -> None:
    """Make a corpus with links, to train on, of documents that name or link to one another."""
    known = next((one for one in KINDS if one == kind), None)
    if known is None:
        raise OptionError("KIND", f"{kind!r} is none of {', '.join(KINDS)}")
    check_new_path(output)
    if max_words is not None and max_words < min_words:
        raise OptionError("--max-words", f"{max_words} is less than --min-words, {min_words}")
    try:
        check_sources(known, sources)
    except CorpusError as error:
        raise OptionError("SOURCES", error) from error
    options = CorpusOptions(documents, min_words, max_words, max_named, mask_titles, held_out, seed)
    with show_progress(console) as progress:
        counts = make_corpus_of(known, sources, output, options, progress)
    parts = ", ".join(f"{number} {part}" for part, number in counts["links of parts"].items())
    console.print(
        f"{output}: {counts['documents']} documents, {counts['words']} words, "
        f"{counts['links']} links ({parts}); counts.json says what was left out"
    )


def recipe_file(recipe: str) -> Path:
    """Return the file of a recipe, which may be the name of one that ships."""
    shipped = RECIPES / f"{recipe}.toml"
    return shipped if not Path(recipe).exists() and shipped.is_file() else Path(recipe)


def _find_files(
    corpora: list[Path], qrels: Path | None, pairs: list[Path], splits: Path | None
) -> list[CorpusFiles]:
    """Find the files of each corpus, and check that all of them can be read."""
    try:
        found = given_files(corpora, qrels, pairs, splits)
    except CorpusError as error:
        raise OptionError("--corpus", error) from error
    for files in found:
        check_corpus(files.corpus, "--corpus")
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
        check_data_directory(feedback, "--feedback")
        check_enough(feedback, MIN_QUERIES, "--feedback")
    check_output_folder(job.work, "--work")
    try:
        recipe = read_recipe(job)
    except TrainingRecipeError as error:
        raise OptionError("RECIPE", error) from error
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
            try:
                counts = write_feedback_corpus(folder, store, read_judged(data, store))
            except CorpusError as error:
                raise OptionError("--feedback", f"{data}: {error}") from error
        queries = ", ".join(f"{number} {part}" for part, number in counts["queries"].items())
        console.print(f"{folder}: {counts['documents']} documents, queries: {queries}")
    return find_corpus_files(folder)


def _check_files(job: TrainingJob[Start], recipe: TrainingRecipe) -> None:
    kinds = {objective.kind for objective in recipe.objectives}
    try:
        if "rerank" in kinds:
            given = any(getattr(one, "pairs", None) == "given" for one in recipe.objectives)
            check_rerank_files(job.files, given=given)
        if recipe.learns_from_classes:
            check_classes(job.files)
        for files in job.files:
            check_pair_files(files, allow_shared=job.allow_shared)
        if pretrains(recipe):
            check_held_out(job.files)
    except CorpusError as error:
        raise OptionError("--corpus", error) from error
    if "links" in kinds and not any(files.qrels for files in job.files):
        raise OptionError("--corpus", "the recipe learns from links, and no corpus has any")
    if "pairs" in kinds and not any(files.pairs for files in job.files):
        raise OptionError("--corpus", "the recipe learns from pairs, and no corpus has any")

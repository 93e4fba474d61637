"""`longmatch bench models`: encoders trained and measured under the same conditions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from evaluation.judgements import PARTS, read_pairs, read_qrels, read_splits
from index.errors import CorpusError
from index.extras import require_extra
from service.cli.checks import OptionError, check_file, check_output_folder, read_option
from service.cli.corpus_checks import check_corpus
from service.cli.options import INTERRUPTED, RESUMABLE, SharedOption, ThreadsOption, console
from service.cli.progress import show_progress, show_training
from training.comparison.job import BERT_FILES, TABLE, Comparison, check_output, facts
from training.comparison.plan import (
    DEFAULT_PLAN,
    Budget,
    Plan,
    PlannedModel,
    read_plan,
    recipe_of_run,
)
from training.data.files import CorpusFiles, check_classes, find_corpus_files, part_in_name
from training.data.pair_files import check_pair_files
from training.errors import TrainingError, TrainingRecipeError

app = typer.Typer(no_args_is_help=True, help="Compare models under the same conditions.")


@app.callback()
def bench() -> None:
    """Compare models under the same conditions."""


@app.command()
def models(
    corpus: Annotated[
        Path,
        typer.Argument(
            help="A folder of corpus.jsonl and pairs, and if retrieval is measured qrels.tsv and "
            "splits.tsv."
        ),
    ],
    bert: Annotated[
        Path, typer.Option(help="Folder of the BERT checkpoint that every model starts from.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder of the result, and of the work.")
    ],
    plan: Annotated[
        str,
        typer.Option(
            help="A TOML file of models, rates and seeds, or the name of one in "
            "training/comparison/plans."
        ),
    ] = DEFAULT_PLAN.stem,
    chosen: Annotated[
        str | None,
        typer.Option("--models", help="Keys of the plan, separated by commas; by default all."),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Training of each model over all its runs; by default the plan's."
        ),
    ] = None,
    budget_steps: Annotated[
        int | None, typer.Option(min=1, help="The same in steps, instead of seconds.")
    ] = None,
    pretraining_corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="More texts for models that are pretrained: JSON Lines, or a folder of "
            "corpus.jsonl; may be repeated."
        ),
    ] = None,
    allow_shared_documents: SharedOption = False,
    blocks: Annotated[
        Path | None,
        typer.Option(help="A folder to keep block vectors in; by default one in the output."),
    ] = None,
    threads: ThreadsOption = None,
) -> None:
    """Train encoders from the same start, data and budget, and measure them side by side.

    If it is stopped, the same command resumes.
    """
    require_extra("train", "bench models")
    require_extra("evaluate", "bench models", "bm25s")
    plan_file = _plan_file(plan)
    read = _read_plan(plan_file)
    compared = _choose(read, chosen)
    job = Comparison(
        plan=read,
        plan_file=plan_file,
        models=compared,
        budget=_budget(read, budget_seconds, budget_steps),
        files=_find_files(corpus, allow_shared=allow_shared_documents),
        bert=bert,
        output=output,
        blocks=blocks or output / "work" / "blocks",
        texts=_find_texts(pretraining_corpus or [], compared),
        allow_shared=allow_shared_documents,
    )
    _check(job)
    from training.comparison.compare import Shown, compare_models  # imports torch
    from training.comparison.runs import check_models

    try:
        check_models(job)
    except TrainingRecipeError as error:
        raise OptionError("--plan", error) from error
    shown = Shown(console.print, lambda: show_progress(console), lambda: show_training(console))
    try:
        compare_models(job, shown, threads)
    except KeyboardInterrupt:
        console.print(RESUMABLE)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo((output / TABLE).read_text(encoding="utf-8"))


def _plan_file(plan: str) -> Path:
    shipped = DEFAULT_PLAN.parent / f"{plan}.toml"
    return shipped if not Path(plan).exists() and shipped.is_file() else Path(plan)


def _find_texts(
    corpora: Sequence[Path], compared: Sequence[PlannedModel]
) -> tuple[CorpusFiles, ...]:
    """Find the files of more texts for pretraining, of which links and pairs are not read."""
    name = "--pretraining-corpus"
    if corpora and all(one.pretraining is None for one in compared):
        raise OptionError(name, "no model of the plan is pretrained")
    found = []
    for corpus in corpora:
        check_corpus(corpus, name)
        lines = [corpus / f"corpus{end}" for end in (".jsonl", ".jsonl.gz")]
        if not corpus.is_file() and not any(path.is_file() for path in lines):
            raise OptionError(name, f"{corpus}: is no JSON Lines file, and has no corpus.jsonl")
        files = find_corpus_files(corpus)
        if files.splits:
            read_option(name, read_splits, files.splits)
        found.append(CorpusFiles(files.corpus, splits=files.splits))
    return tuple(found)


def _read_plan(path: Path) -> Plan:
    try:
        return read_plan(path)
    except TrainingRecipeError as error:
        raise OptionError("--plan", error) from error


def _choose(plan: Plan, chosen: str | None) -> tuple[PlannedModel, ...]:
    keys = None if chosen is None else [one.strip() for one in chosen.split(",")]
    try:
        return plan.choose(keys)
    except TrainingRecipeError as error:
        raise OptionError("--models", error) from error


def _budget(plan: Plan, seconds: float | None, steps: int | None) -> Budget:
    if seconds is not None and steps is not None:
        raise OptionError("--budget-steps", "cannot be combined with --budget-seconds")
    if steps is not None:
        return Budget(None, steps)
    return Budget(plan.budget_seconds if seconds is None else seconds, None)


def _find_files(corpus: Path, *, allow_shared: bool) -> CorpusFiles:
    """Find the files of a corpus, and check that they have what is measured."""
    check_corpus(corpus)
    files = find_corpus_files(corpus)
    if files.qrels:
        read_option("CORPUS", read_qrels, files.qrels)
        if files.splits is None:
            raise OptionError("CORPUS", f"{corpus}: has no splits (splits.tsv beside corpus.jsonl)")
    if files.splits:
        splits = read_option("CORPUS", read_splits, files.splits)
        for part in PARTS:
            if part not in splits.values():
                raise OptionError("CORPUS", f"{files.splits}: no document is in {part!r}")
    found = {part_in_name(path): path for path in files.pairs}
    for part in ("valid", "test"):
        if part not in found:
            raise OptionError("CORPUS", f"{corpus}: has no pairs.{part}.jsonl")
        labels = {pair.label for pair in read_option("CORPUS", read_pairs, found[part])}
        if len(labels) < 2:
            raise OptionError("CORPUS", f"{found[part]}: all pairs have the same label")
    try:
        check_pair_files(files, allow_shared=allow_shared)
    except CorpusError as error:
        raise OptionError("CORPUS", error) from error
    return files


def _check_labels(job: Comparison) -> None:
    """Check that the corpus has what the models learn from."""
    recipes = [recipe_of_run(job.plan, m, rate=m.rates[0], seed=0, steps=1) for m in job.models]
    learned = {
        what
        for recipe in recipes
        for one in recipe.objectives
        for what in (one.kind, one.parameters.get("groups"))
    }
    if "links" in learned and job.files.qrels is None:
        raise OptionError(
            "CORPUS",
            f"{job.files.corpus}: has no links (qrels.tsv beside corpus.jsonl), which the plan "
            "learns from",
        )
    if "pairs" in learned and not any(part_in_name(path) == "train" for path in job.files.pairs):
        raise OptionError("CORPUS", f"{job.files.corpus}: has no pairs.train.jsonl")
    if any(recipe.learns_from_classes for recipe in recipes):
        try:
            check_classes([job.files])
        except CorpusError as error:
            raise OptionError("CORPUS", error) from error


def _check(job: Comparison) -> None:
    """Check the folders of a comparison, and that its budget is not too small by its steps."""
    for name in BERT_FILES:
        check_file(job.bert / name, "--bert")
    _check_labels(job)
    for one in job.models:
        runs = job.plan.runs(one)
        if not job.budget.steps_of_run(runs, 0.0):
            given = "--budget-seconds" if job.budget.steps is None else "--budget-steps"
            raise OptionError(given, f"is too small: {one.key} has {runs} runs of one step or more")
    check_output_folder(job.output, "--output")
    check_output_folder(job.blocks, "--blocks")
    try:
        check_output(job.output, facts(job))
    except TrainingError as error:
        raise OptionError("--output", error) from error

"""The output of a job: the checkpoint with its graphs, curves and report."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.terms.term_channel import TermChannel
from training.data.corpus_folder import TRAINING, new_folder, read_learned, write_learned
from training.data.files import EncoderJob, Start, TrainingJob
from training.export.export import Gate, export_checkpoint
from training.jobs.fit_search import SearchFit
from training.models.architecture import EncoderModel
from training.recipe import TrainingRecipe
from training.run_files import CURVE, VALIDATION, RunState, read_curve
from training.trained_checkpoint import write_trained

RUN = "run"  # in the work directory: state, best weights and curve of the loop
REPORT = "report.json"


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The outcome of a run.

    Attributes:
        recipe: its name.
        start: name and fingerprint of the checkpoint it started from.
        figure: what validation measured.
        before: this figure before the first step.
        best: the best one.
        best_step: the step after which it was measured; the checkpoint has these weights.
        steps: completed.
        stopped: why it ended: "steps", "patience" or "time".
        shared_documents: whether training could see documents of held-out pairs, and held-out
            texts: the figure is then optimistic. How many it saw is with the corpora.
        corpora: facts about each.
        search: the fusion that was fitted, and the modes of search before and after.
    """

    recipe: str
    start: str
    figure: str
    before: float
    best: float
    best_step: int
    steps: int
    stopped: str
    shared_documents: bool
    corpora: tuple[Mapping[str, Any], ...]
    search: SearchFit | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model with its term channel.

    Attributes:
        model: with its best weights.
        channel: its term channel.
        report: of the run.
    """

    model: EncoderModel
    channel: TermChannel
    report: TrainingReport


def make_report(
    job: TrainingJob[Start],
    recipe: TrainingRecipe,
    figure: str,
    corpora: Sequence[Mapping[str, Any]],
    state: RunState,
) -> TrainingReport:
    """Make the report of a run that has ended.

    Args:
        state: of the run at its end.
    """
    records = read_curve(job.work / RUN / CURVE)
    out_of_patience = "patience" if state.waited >= recipe.patience else "time"
    return TrainingReport(
        recipe=recipe.name,
        start=f"{job.start.name} {job.start.fingerprint}",
        figure=figure,
        before=next(record[VALIDATION] for record in records if VALIDATION in record),
        best=state.best_figure,
        best_step=state.best_step,
        steps=state.step,
        stopped="steps" if state.step == recipe.steps else out_of_patience,
        shared_documents=job.allow_shared,
        corpora=tuple(corpora),
    )


def write_output(
    job: EncoderJob,
    trained: Trained,
    gate: Gate,
    fit: Callable[[Checkpoint], SearchFit | None],
) -> TrainingReport:
    """Write the checkpoint, its graphs, the curves and the report, atomically.

    Args:
        fit: fits what search needs beside the graphs (`training.jobs.fit_search`).

    Returns:
        The report, with what was fitted.
    """
    name = f"{job.start.name}-{trained.report.recipe}"
    with new_folder(job.output) as directory:
        model = trained.model.cpu()
        checkpoint = write_trained(model, trained.channel, job.start, directory, name)
        export_checkpoint(checkpoint, job.precisions, gate)
        report = replace(trained.report, search=fit(load_checkpoint(directory)))
        write_report(job, report, directory)
    return report


def write_report(job: TrainingJob[Start], report: TrainingReport, directory: Path) -> None:
    """Write curve, recipe and report into a checkpoint."""
    curves = directory / TRAINING
    curves.mkdir()
    shutil.copyfile(job.work / RUN / CURVE, curves / CURVE)
    shutil.copyfile(job.recipe, curves / "recipe.toml")
    _write_learned(job, curves)
    content = json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"
    (curves / REPORT).write_text(content, encoding="utf-8")


def _write_learned(job: TrainingJob[Start], curves: Path) -> None:
    """Write which queries of feedback were learned from, now or by the start, if any were."""
    places: list[Path] = [job.start.directory / TRAINING]
    for files in job.files:
        places.append(files.corpus if files.corpus.is_dir() else files.corpus.parent)
    found = [learned for learned in map(read_learned, places) if learned is not None]
    if found:
        write_learned(curves, set().union(*found))

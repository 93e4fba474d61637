"""The pretraining of the models of a comparison that are pretrained: once each, on texts alone."""

import hashlib
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from encoder.atomic_files import replace_durably, write_atomically
from encoder.block_archive import archive_key
from index.progress import Progress
from training.comparison.job import Cell, Comparison, keep_cell, to_toml
from training.comparison.plan import PlannedModel, fingerprint, pretraining_table
from training.comparison.runs import StepTimer, open_start
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import EncoderJob
from training.data.sampling import TrainingSource
from training.errors import TrainingError
from training.jobs.output import Trained
from training.jobs.train_encoder import read_tokens, run_training, sources_of
from training.progress import SilentTrainingProgress, TrainingProgress
from training.recipe import parse_training_recipe
from training.trained_checkpoint import write_trained

PACE_STEPS = 4  # the first of which is not counted


def pretrain_model(
    job: Comparison, model: PlannedModel, progress: Progress, training: TrainingProgress
) -> Cell:
    """Pretrain a model, resume it, or return what was kept of it.

    The training part of the corpus is read, and the other texts of the job. The weights begin with
    the first seed, and every run of the model begins with the result.

    Args:
        job: of the comparison.
        model: that the plan pretrains.
        progress: is notified while texts are read.
        training: is notified of every step.

    Returns:
        Steps, the loss of held-out documents before, and its best value, with the step.

    Raises:
        TrainingError: the budget is too small for one step, or a loss is not finite.
        CorpusError: a corpus cannot be read, or texts of it are held out of another.
        EncoderError: the checkpoint cannot be made.
    """

    def make() -> Cell:
        read = _read(job, model, progress)
        steps = _steps(job, model, read)
        trained = _train(job, model, read, training, steps, _folder(job, model))
        report, start = trained.report, open_start(job, model, job.plan.seeds[0])
        directory = job.pretrained(model)
        partial = directory.with_name(directory.name + ".partial")
        for unfinished in (partial, directory):
            shutil.rmtree(unfinished, ignore_errors=True)
        write_trained(trained.model, trained.channel, start, partial, f"{model.key}-pretrained")
        replace_durably(partial, directory)
        return {
            "figure": report.figure,
            "before": report.before,
            "best": report.best,
            "best_step": report.best_step,
            "steps": report.steps,
            "documents": sum(len(one.rows) for one in read.sources),
        }

    return keep_cell(job, f"pretraining-{model.key}", make)


@dataclass(frozen=True, slots=True)
class _Texts:
    """What pretraining reads, and samples of it."""

    data: Sequence[TrainingCorpus]
    sources: Sequence[TrainingSource]


def _read(job: Comparison, model: PlannedModel, progress: Progress) -> _Texts:
    """Cut all texts into blocks of tokens, once for all models that cut them in the same way."""
    start = open_start(job, model, job.plan.seeds[0])
    key = fingerprint(asdict(archive_key(start, tokens_only=True)))[:16]
    read = []
    for number, files in enumerate((job.own_texts, *job.texts)):
        # The first one is what fine-tuning reads, too.
        path = hashlib.sha256(str(files.corpus.resolve()).encode()).hexdigest()[:8]
        directory = job.blocks / (f"{key}-{path}" if number else key)
        read.append((files, read_tokens(files.corpus, directory, start, progress)))
    data = read_training_data(read, job.plan.seeds[0], allow_shared=job.allow_shared)
    recipe = parse_training_recipe(pretraining_table(job.plan, model, steps=1))
    return _Texts(
        data, sources_of(recipe, start, data, [job.work / "unused"] * len(data), progress)
    )


def _steps(job: Comparison, model: PlannedModel, read: _Texts) -> int:
    """Return the steps that the budget allows, at a pace that is measured once and kept."""
    budget = job.plan.pretraining_budget()
    if budget.steps is not None:
        return budget.steps

    def measure() -> Cell:
        timer, folder = StepTimer(SilentTrainingProgress()), _folder(job, model, "-pace")
        shutil.rmtree(folder, ignore_errors=True)
        _train(job, model, read, timer, PACE_STEPS, folder)
        shutil.rmtree(folder)
        return {"seconds_per_step": statistics.median(timer.seconds[1:])}

    pace = float(keep_cell(job, f"pace-{model.key}-pretraining", measure)["seconds_per_step"])
    steps = budget.steps_of_run(1, pace)
    if not steps:
        raise TrainingError(
            f"{model.key}: pretraining_seconds is too small: a step takes {pace:.3g} s"
        )
    return steps


def _train(
    job: Comparison,
    model: PlannedModel,
    read: _Texts,
    progress: TrainingProgress,
    steps: int,
    work: Path,
) -> Trained:
    recipe = job.pretraining_recipe(model)
    write_atomically(recipe, to_toml(pretraining_table(job.plan, model, steps=steps)))
    encoder_job = EncoderJob(
        recipe=recipe,
        start=open_start(job, model, job.plan.seeds[0]),
        files=[one.files for one in read.data],
        output=work / "checkpoint",  # not written
        work=work,
        precisions=[],
        allow_shared=job.allow_shared,
    )
    return run_training(encoder_job, read.data, read.sources, progress)


def _folder(job: Comparison, model: PlannedModel, suffix: str = "") -> Path:
    return job.work / "runs" / f"{model.key}-pretraining{suffix}"

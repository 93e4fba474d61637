"""The job of `longmatch bench models`: every model trained, tuned and measured, resumable."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from filelock import FileLock, Timeout

from encoder.arrays import Float32
from encoder.atomic_files import write_atomically
from evaluation.systems import System
from index.errors import CorpusError
from index.progress import Progress
from training.comparison.job import (
    RESULT,
    TABLE,
    Cell,
    Comparison,
    Run,
    commands,
    keep_cell,
    open_output,
)
from training.comparison.measure import (
    Truth,
    measure_lengths,
    read_truth,
    report_quality,
    time_models,
    word_systems,
)
from training.comparison.plan import PlannedModel, fingerprint
from training.comparison.pretraining import pretrain_model
from training.comparison.runs import (
    DataReader,
    Prepared,
    choose_rate,
    drop_run,
    encode_documents,
    keep_vectors,
    measure_pace,
    open_start,
    open_trained,
    open_training_start,
    train_run,
)
from training.comparison.table import draw, table
from training.errors import TrainingError
from training.progress import TrainingProgress


@dataclass(frozen=True, slots=True)
class Shown:
    """How a comparison reports its progress.

    Attributes:
        say: prints a line.
        progress: opens the progress of a job.
        training: opens the progress of a run.
    """

    say: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress]]
    training: Callable[[], AbstractContextManager[TrainingProgress]]


def compare_models(job: Comparison, shown: Shown, threads: int | None = None) -> dict[str, Any]:
    """Compare models, or resume their comparison; write result, table and plots.

    Args:
        job: of the comparison, checked by `check_models`.
        shown: how progress is reported.
        threads: of training and encoding; by default as many as PyTorch chooses.

    Raises:
        CorpusError: the corpus cannot be read, or lacks what is measured.
        TrainingError: the budget is too small for one step of each run of a model, every rate of
            a model diverges, or the folder is of another comparison or in use.
        EncoderError: a model cannot be made or trained.
        OSError: a file cannot be written.
    """
    if threads:
        torch.set_num_threads(threads)
    open_output(job)
    try:
        with FileLock(job.work / "writer.lock", timeout=0):
            return _compare(job, shown)
    except Timeout as error:
        raise TrainingError(f"{job.output}: another process is comparing into it") from error


def _compare(job: Comparison, shown: Shown) -> dict[str, Any]:
    steps = {}
    with shown.progress() as progress:
        read = DataReader(job, progress)
        prepared = {model.key: read(model) for model in job.models}
    first = prepared[job.models[0].key]
    truth = read_truth(job.files, first.data.encoded.ids)
    _check_measured(job, first, truth)
    for model in job.models:
        with shown.training() as training:
            pace = measure_pace(job, model, prepared[model.key], training)
        steps[model.key] = _steps(job, model, pace)
        shown.say(f"{model.key}: {pace:.3g} s a step, {steps[model.key]} steps a run")
    pretrained = {model.key: _pretrain(job, model, shown) for model in job.models}
    rows = {
        model.key: _train_model(job, model, prepared[model.key], steps[model.key], truth, shown)
        for model in job.models
    }
    for key, row in rows.items():
        row["pretraining"] = pretrained[key]
    vectors = {one.name: rows[one.key].pop("vectors") for one in job.models}
    result = {
        "plan": job.plan.name,
        "corpus": first.data.found.facts(),
        "reference": job.models[0].name,
        "budget": {"seconds": job.budget.seconds, "steps": job.budget.steps},
        "models": rows,
        **report_quality(vectors, first, truth, _word_systems(job, first, shown)),
        "speed": _speed(job, prepared),
    }
    _write(job, result)
    return result


def _pretrain(job: Comparison, model: PlannedModel, shown: Shown) -> Cell | None:
    """Pretrain a model where the plan says so."""
    if model.pretraining is None:
        return None
    shown.say(f"{model.key}: pretraining")
    with shown.progress() as progress, shown.training() as training:
        return pretrain_model(job, model, progress, training)


def _word_systems(job: Comparison, prepared: Prepared, shown: Shown) -> list[System]:
    """Make the systems of words; those that a small corpus has too few words for are left out."""
    made: list[System] = []
    try:
        for system in word_systems(job.files.corpus, prepared.data.encoded.ids):
            made.append(system)
    except CorpusError as error:
        shown.say(f"left out: {error}")
    return made


def _check_measured(job: Comparison, prepared: Prepared, truth: Truth) -> None:
    if job.files.qrels is None:
        return
    if not prepared.data.judgements:
        raise CorpusError(f"{job.files.qrels}: judges no document of the validation part")
    if not truth.queries:
        raise CorpusError(f"{job.files.qrels}: judges no document of the test part")


def _steps(job: Comparison, model: PlannedModel, pace: float) -> int:
    runs = job.plan.runs(model)
    steps = job.budget.steps_of_run(runs, pace)
    if not steps:
        raise TrainingError(
            f"{model.key}: the budget is too small: {runs} runs of a step of {pace:.3g} s take "
            f"{runs * pace:.3g} s"
        )
    return steps


def _train_model(
    job: Comparison,
    model: PlannedModel,
    prepared: Prepared,
    steps: int,
    truth: Truth,
    shown: Shown,
) -> dict[str, Any]:
    """Tune the rate with the first seed, train all seeds with the best one, and encode."""
    first = job.plan.seeds[0]
    tried = [_train(job, Run(model, rate, first, steps), prepared, shown) for rate in model.rates]
    chosen, trained = _train_seeds(job, model, prepared, tried, shown)
    rate = chosen[0].rate
    for other in set(model.rates) - {rate}:
        drop_run(job, Run(model, other, first, steps))
    vectors = [_vectors(job, run, prepared, shown) for run in chosen]
    lengths = keep_cell(
        job,
        f"lengths-{model.key}",
        lambda: {"points": _lengths(job, chosen[0], prepared, truth, shown)},
    )
    archive = prepared.data.encoded.archive
    return {
        "name": model.name,
        "rate": rate,
        "rate_is_at_an_end": len(model.rates) > 1 and rate in (model.rates[0], model.rates[-1]),
        "steps": steps,
        "tried": tried,
        "seeds": trained,
        "tokens_read": archive.mean_tokens(prepared.recipe.max_blocks),
        "by_tokens_read": lengths["points"],
        "from_tokens": prepared.from_tokens,
        "reported": [one.model_dump(mode="json") for one in model.reported],
        "commands": [commands(job, run) for run in chosen],
        "vectors": vectors,
    }


def _train_seeds(
    job: Comparison,
    model: PlannedModel,
    prepared: Prepared,
    tried: Sequence[Cell],
    shown: Shown,
) -> tuple[list[Run], list[Cell]]:
    """Train every seed with the best rate; one that diverges with a seed counts as diverged."""
    left = list(tried)
    while True:
        rate = choose_rate(left, model)
        chosen = [Run(model, rate, seed, int(tried[0]["steps"])) for seed in job.plan.seeds]
        trained = [_train(job, run, prepared, shown) for run in chosen]
        if not any("diverged" in one for one in trained):
            return chosen, trained
        left = [one for one in left if one["rate"] != rate]


def _train(job: Comparison, run: Run, prepared: Prepared, shown: Shown) -> Cell:
    shown.say(f"{run.name}: training")
    with shown.training() as training:
        return train_run(job, run, prepared, training)


def _vectors(job: Comparison, run: Run, prepared: Prepared, shown: Shown) -> Float32:
    def encode() -> Float32:
        shown.say(f"{run.name}: encoding the corpus")
        with shown.training() as training:
            trained = open_trained(job, run, prepared, training)
        start = open_training_start(job, run)
        return encode_documents(trained, prepared, start, range(len(prepared.data.encoded.ids)))

    return keep_vectors(job.work / "vectors" / f"{run.name}.npy", encode)


def _lengths(
    job: Comparison, run: Run, prepared: Prepared, truth: Truth, shown: Shown
) -> list[dict[str, float]]:
    with shown.training() as training:
        trained = open_trained(job, run, prepared, training)
    start = open_training_start(job, run)
    return measure_lengths(trained, start, prepared, truth, job.plan.lengths)


def _speed(job: Comparison, prepared: dict[str, Prepared]) -> Cell:
    """Time all models together; others than before are timed again."""
    first = job.plan.seeds[0]
    opened = {one.key: (prepared[one.key], open_start(job, one, first)) for one in job.models}
    name = f"speed-{fingerprint({'models': list(opened)})[:16]}"
    return keep_cell(job, name, lambda: {**time_models(opened, job.plan.timed_documents)})


def _write(job: Comparison, result: dict[str, Any]) -> None:
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_atomically(job.output / RESULT, text)
    write_atomically(job.output / TABLE, table(result))
    draw(result, job.output)

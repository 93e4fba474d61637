"""The runs of an experiment: starts, data, pretraining, training, vectors."""

import hashlib
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from rich.console import Console

from benchmarks.models.experiment import Cell, Experiment, Run, fingerprint, keep_cell
from benchmarks.models.plan import (
    Budget,
    PlannedModel,
    pretraining_table,
    recipe_of,
    training_table,
)
from encoder.arrays import Float32
from encoder.atomic_files import replace_durably, write_atomically
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.block_archive import ArchiveKey, archive_key
from evaluation.encoded_corpus import EncodedCorpus, keep_blocks, keep_tokens
from index.progress import SilentProgress
from training.collate import Reader, encode_slices
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import EncoderJob
from training.data.sampling import DocumentSlice, TrainingSource, find_sources, needs_neighbours
from training.errors import NotFiniteError, TrainingError
from training.export.create import Recipe, create_checkpoint, load_model
from training.export.export import export_checkpoint
from training.jobs.output import Trained
from training.jobs.train_encoder import run_training
from training.models.architecture import EncoderModel
from training.progress import TrainingProgress
from training.recipe import TrainingRecipe
from training.trained_checkpoint import write_trained

PRECISION = "int8"  # of stored block vectors, as `longmatch train` computes them
_PACE_STEPS = 4  # the first of which is not counted
_SECONDS_BETWEEN_LINES = 15.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the runs of a model read.

    Attributes:
        data: its corpus, cut into the sentence blocks that it reads.
        sources: of the training batches.
        recipe: of a run, for what all of its runs have in common.
    """

    data: TrainingCorpus
    sources: Sequence[TrainingSource]
    recipe: TrainingRecipe


class JobLines(SilentProgress):
    """Prints the steps of a job."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """Print what begins."""
        self._console.print(step if total is None else f"{step}: {total} {unit}")


class RunLines(TrainingProgress):
    """Prints from time to time how far a run is, and measures its steps without validations.

    Attributes:
        seconds: of each step: processor time over threads, so that a budget buys as many steps
            on a busy machine as on a quiet one.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = time.monotonic()
        self.seconds: list[float] = []
        self._since = 0.0

    def started(self, step: int, steps: int) -> None:
        """Begin to measure."""
        self._since = time.process_time()

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Note a step."""
        self.seconds.append((time.process_time() - self._since) / torch.get_num_threads())
        self._since = time.process_time()
        if time.monotonic() - self._printed > _SECONDS_BETWEEN_LINES:
            self._console.print(f"  step {step}, loss {figures['loss']:.3f}")
            self._printed = time.monotonic()

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Leave out a validation."""
        self._since = time.process_time()


class DataReader:
    """Reads the corpus as each model does, once for all that read it in the same way."""

    def __init__(self, experiment: Experiment, console: Console) -> None:
        self._experiment = experiment
        self._progress = JobLines(console)
        self._known: dict[object, tuple[TrainingCorpus, Sequence[TrainingSource]]] = {}

    def __call__(self, model: PlannedModel) -> Prepared:
        """Read it for a model: as stored block vectors, or as tokens alone."""
        experiment, seed = self._experiment, self._experiment.plan.seeds[0]
        recipe = recipe_of(experiment.plan, model)
        start = open_start(experiment, model, seed)
        frozen = recipe.sentence_level.trained == "frozen"
        if frozen and PRECISION not in start.precisions:
            export_checkpoint(start, [PRECISION])
            start = load_checkpoint(start.directory)
        key = archive_key(start, precision=PRECISION, tokens_only=not frozen)
        cut = any("parts" in objective.parameters for objective in recipe.objectives)
        neighbours = needs_neighbours(recipe.objectives)
        alike = (key, start.block_dimension, recipe.max_blocks, cut, neighbours)
        if alike not in self._known:
            encoded = self._encode(start, key)
            (data,) = read_training_data(
                [(experiment.files, encoded)],
                seed,
                allow_shared=experiment.allow_shared,
            )
            sources = find_sources(recipe, start, [data], self._progress)
            self._known[alike] = data, sources
        return Prepared(*self._known[alike], recipe)

    def _encode(self, start: Checkpoint, key: ArchiveKey) -> EncodedCorpus:
        # Models with one sentence level share an archive.
        directory = self._experiment.blocks / fingerprint(asdict(key))[:16]
        corpus = self._experiment.files.corpus
        if key.tokens_only:
            return keep_tokens(corpus, directory, start, self._progress)
        encoder = OnnxEncoder(start, precision=PRECISION, threads=torch.get_num_threads())
        return keep_blocks(corpus, directory, encoder, self._progress)


def open_start(experiment: Experiment, model: PlannedModel, seed: int) -> Checkpoint:
    """Open the new checkpoint of a model and seed, made if it is missing."""
    directory = experiment.start(model, seed)

    def make(partial: Path) -> None:
        recipe = Recipe.model_validate(model.create)
        create_checkpoint(recipe, str(experiment.bert), partial, seed=seed)

    return _keep_checkpoint(directory, make)


def open_training_start(experiment: Experiment, run: Run) -> Checkpoint:
    """Open what a run starts from: the pretrained checkpoint of its model, or a new one."""
    if run.model.pretraining is None:
        return open_start(experiment, run.model, run.seed)
    return load_checkpoint(experiment.start(run.model, run.seed, pretrained=True))


def steps_of(
    experiment: Experiment, model: PlannedModel, prepared: Prepared, console: Console
) -> int:
    """Return the steps of each run of a model."""
    plan = experiment.plan
    runs = len(model.rates) + len(plan.seeds) - 1  # each rate once, the best one with every seed

    def train(name: str, steps: int, progress: RunLines) -> None:
        seed = plan.seeds[0]
        table = training_table(plan, model, rate=model.rates[0], seed=seed, steps=steps)
        start = open_start(experiment, model, seed)
        _train(experiment, name, table, start, [prepared.data], prepared.sources, progress)

    if not model.rates:
        return 0
    return _measured_steps(experiment, model.key, plan.budget, runs, train, console)


def pretrain(
    experiment: Experiment, model: PlannedModel, seed: int, console: Console
) -> Cell | None:
    """Pretrain a model where the plan says so, resume it, or return what was kept of it.

    The training part of the corpus is read, and the other texts of the experiment. The runs of
    the model with this seed begin with the result.
    """
    if model.pretraining is None:
        return None
    plan = experiment.plan
    assert plan.pretraining_budget is not None, "checked with the plan"
    budget, job = plan.pretraining_budget, f"{model.key}-pretraining"
    name = f"{job}-seed-{seed}"

    def make() -> Cell:
        start = open_start(experiment, model, seed)
        data, sources = _read_texts(experiment, model, start, console)

        def train(name: str, steps: int, progress: RunLines) -> Trained:
            table = pretraining_table(plan, model, seed=seed, steps=steps)
            return _train(experiment, name, table, start, data, sources, progress)

        steps = _measured_steps(experiment, job, budget, 1, train, console)
        console.print(f"{name}: {steps} steps")
        trained = train(name, steps, RunLines(console))
        directory = experiment.start(model, seed, pretrained=True)
        shutil.rmtree(directory, ignore_errors=True)
        _keep_checkpoint(
            directory,
            lambda partial: write_trained(
                trained.model, trained.channel, start, partial, f"{model.key}-pretrained"
            ),
        )
        return _reported(trained) | {
            "seed": seed,
            "steps": steps,
            "documents": sum(len(source.rows) for source in sources),
        }

    return keep_cell(experiment, name, make)


def train_run(experiment: Experiment, run: Run, prepared: Prepared, console: Console) -> Cell:
    """Train a model, or resume its run, and return what validation measured.

    A run whose loss was not finite has `diverged` instead.
    """

    def train() -> Cell:
        cell: Cell = {"rate": run.rate, "seed": run.seed, "steps": run.steps}
        if not run.steps:
            return cell
        console.print(f"{run.name}: {run.steps} steps")
        try:
            return cell | _reported(_trained(experiment, run, prepared, console))
        except NotFiniteError as error:
            return cell | {"diverged": f"step {error.step}: {error.what}"}

    return keep_cell(experiment, f"run-{run.name}", train)


def choose_rate(tried: Sequence[Cell], model: PlannedModel) -> float:
    """Return the rate with the best figure of validation, of equal ones the lowest."""
    usable = [cell for cell in tried if "diverged" not in cell]
    if not usable:
        raise TrainingError(
            f"{model.key}: all rates of {list(model.rates)} diverge: try lower ones"
        )
    best = max(usable, key=lambda cell: (cell["best"], -cell["rate"]))
    return float(best["rate"])


def drop_run(experiment: Experiment, name: str) -> None:
    """Delete the weights and the recipe of a run that is not needed any more."""
    shutil.rmtree(experiment.run_folder(name), ignore_errors=True)
    experiment.recipe(name).unlink(missing_ok=True)


def open_trained(
    experiment: Experiment, run: Run, prepared: Prepared, console: Console
) -> EncoderModel:
    """Return the model of a finished run, with its best weights."""
    if not run.steps:
        return load_model(open_training_start(experiment, run)).eval()
    return _trained(experiment, run, prepared, console).model.eval()


def encode_documents(
    model: EncoderModel,
    prepared: Prepared,
    start: Checkpoint,
    rows: Sequence[int],
    max_blocks: int | None = None,
) -> Float32:
    """Return the vectors Float32[D, dimension] of D rows of the corpus.

    `max_blocks` blocks of a document are read, by default as many as in training.
    """
    encoded, most = prepared.data.texts, prepared.recipe.max_blocks
    reader = Reader([encoded.archive], start, min(max_blocks or most, most))
    parts = [DocumentSlice(0, int(encoded.rows[row])) for row in rows]
    from_tokens = prepared.recipe.sentence_level.trained != "frozen"
    return encode_slices(model, reader, parts, from_tokens=from_tokens)


def vectors_of(experiment: Experiment, run: Run, prepared: Prepared, console: Console) -> Float32:
    """Return the vectors of all documents by a finished run; if they are missing, make them."""
    path = experiment.work / "vectors" / f"{run.name}.npy"
    if not path.exists():
        console.print(f"{run.name}: encoding the corpus")
        trained = open_trained(experiment, run, prepared, console)
        start = open_training_start(experiment, run)
        made = encode_documents(trained, prepared, start, range(len(prepared.data.texts.ids)))
        partial = path.with_name(f"{path.stem}.partial.npy")
        np.save(partial, made, allow_pickle=False)
        replace_durably(partial, path)
    vectors: Float32 = np.load(path, allow_pickle=False)
    return vectors


def _keep_checkpoint(directory: Path, make: Callable[[Path], object]) -> Checkpoint:
    if not directory.exists():
        partial = directory.with_name(directory.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        replace_durably(partial, directory)
    return load_checkpoint(directory)


def _read_texts(
    experiment: Experiment, model: PlannedModel, start: Checkpoint, console: Console
) -> tuple[Sequence[TrainingCorpus], Sequence[TrainingSource]]:
    """Cut all texts into blocks of tokens, once for all models that cut them in the same way."""
    key = fingerprint(asdict(archive_key(start, tokens_only=True)))[:16]
    recipe = TrainingRecipe.parse(
        pretraining_table(experiment.plan, model, seed=experiment.plan.seeds[0], steps=1)
    )
    progress, read = JobLines(console), []
    for number, files in enumerate(experiment.pretraining_files):
        # The first one is what training reads, too.
        path = hashlib.sha256(str(files.corpus.resolve()).encode()).hexdigest()[:8]
        directory = experiment.blocks / (f"{key}-{path}" if number else key)
        read.append((files, keep_tokens(files.corpus, directory, start, progress)))
    data = read_training_data(read, experiment.plan.seeds[0], allow_shared=experiment.allow_shared)
    return data, find_sources(recipe, start, data, progress)


def _measured_steps(
    experiment: Experiment,
    name: str,
    budget: Budget,
    runs: int,
    train: Callable[[str, int, RunLines], object],
    console: Console,
) -> int:
    """Return the steps that a budget allows, at a pace that is measured once and kept."""
    if budget.seconds is None:
        return budget.steps or 0

    def measure() -> Cell:
        run = f"{name}-pace"
        drop_run(experiment, run)
        timer = RunLines(console)
        train(run, _PACE_STEPS, timer)
        drop_run(experiment, run)
        return {"seconds_per_step": statistics.median(timer.seconds[1:])}

    pace = float(keep_cell(experiment, f"pace-{name}", measure)["seconds_per_step"])
    steps = int(budget.seconds / runs / pace)
    console.print(f"{name}: {pace:.3g} s a step, {steps} steps a run")
    if not steps:
        raise TrainingError(
            f"{name}: the budget is too small: {runs} runs of a step of {pace:.3g} s take "
            f"{runs * pace:.3g} s"
        )
    return steps


def _trained(experiment: Experiment, run: Run, prepared: Prepared, console: Console) -> Trained:
    table = training_table(
        experiment.plan, run.model, rate=run.rate, seed=run.seed, steps=run.steps
    )
    start = open_training_start(experiment, run)
    data = [prepared.data]
    return _train(experiment, run.name, table, start, data, prepared.sources, RunLines(console))


def _train(
    experiment: Experiment,
    name: str,
    table: Mapping[str, Any],
    start: Checkpoint,
    data: Sequence[TrainingCorpus],
    sources: Sequence[TrainingSource],
    progress: RunLines,
) -> Trained:
    """Train, resume, or open what is trained already."""
    recipe, work = experiment.recipe(name), experiment.run_folder(name)
    write_atomically(recipe, tomli_w.dumps(table))
    job = EncoderJob(
        recipe=recipe,
        start=start,
        files=[corpus.files for corpus in data],
        output=work / "checkpoint",  # not written
        work=work,
        precisions=[],
        allow_shared=experiment.allow_shared,
    )
    return run_training(job, data, sources, progress)


def _reported(trained: Trained) -> Cell:
    names = ("figure", "before", "best", "best_step")
    return {name: getattr(trained.report, name) for name in names}

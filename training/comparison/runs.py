"""The runs of a comparison: starts, data, the pace of a model, training, vectors."""

import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from encoder.arrays import Float32
from encoder.atomic_files import replace_durably
from encoder.block_archive import ArchiveKey, archive_key
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.export.create import Recipe, create_checkpoint
from encoder.export.export import export_checkpoint
from encoder.export.recipe_file import parse_recipe
from encoder.models.architecture import EncoderModel, RecurrentModel
from encoder.models.registry import ENCODERS
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import EncodedCorpus, keep_blocks
from index.progress import Progress
from training.collate import Reader, encode_slices
from training.comparison.job import Cell, Comparison, Run, keep_cell, write_run_recipe
from training.comparison.plan import (
    PlannedModel,
    creation_table,
    fingerprint,
    pretraining_table,
    recipe_of_run,
)
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import EncoderJob
from training.data.sampling import DocumentSlice, TrainingSource
from training.errors import NotFiniteError, TrainingError, TrainingRecipeError
from training.jobs.output import Trained
from training.jobs.train_encoder import read_tokens, run_training, sources_of
from training.progress import TrainingProgress
from training.recipe import TrainingRecipe, check_recurrence, parse_training_recipe

PRECISION = "int8"  # of stored block vectors, as `longmatch train` computes them
_PACE_STEPS = 4  # the first of which is not counted


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

    @property
    def from_tokens(self) -> bool:
        """Whether the sentence level is trained, so that no stored block vector is read."""
        return self.recipe.sentence_level.trained != "frozen"

    def reader(self, start: Checkpoint, max_blocks: int | None = None) -> Reader:
        """Return what reads its documents, up to `max_blocks` blocks of each."""
        limit = min(max_blocks or self.recipe.max_blocks, self.recipe.max_blocks)
        return Reader([self.data.encoded.archive], start, limit)


@dataclass(slots=True)
class StepTimer:
    """Passes on the progress of a run, and measures its steps without its validations.

    Attributes:
        seconds: of each step: processor time over threads, so that a budget buys as many steps
            beside other work as on a quiet machine.
    """

    shown: TrainingProgress
    seconds: list[float] = field(default_factory=list)
    _since: float = 0.0

    def started(self, step: int, steps: int) -> None:
        """A run begins."""
        self.shown.started(step, steps)
        self._since = time.process_time()

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """A step is done."""
        self.seconds.append((time.process_time() - self._since) / torch.get_num_threads())
        self.shown.stepped(step, figures)
        self._since = time.process_time()

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """A validation is done."""
        self.shown.validated(step, figure, best=best)
        self._since = time.process_time()


def check_models(job: Comparison) -> None:
    """Check that the checkpoints of all models can be made, and trained as the plan says.

    Raises:
        TrainingRecipeError: one cannot; names the model and the field.
    """
    for model in job.models:
        try:
            created = parse_recipe(
                creation_table(job.plan_file, model), Recipe, TrainingRecipeError
            )
            recipe = recipe_of_run(
                job.plan, model, rate=model.rates[0], seed=job.plan.seeds[0], steps=1
            )
            made = ENCODERS[created.architecture].model
            recurrent = isinstance(made, type) and issubclass(made, RecurrentModel)
            check_recurrence(recipe, recurrent=recurrent)
            if model.pretraining is not None:
                table = pretraining_table(job.plan, model, steps=1)
                pretraining = parse_training_recipe(table)
                check_recurrence(pretraining, recurrent=recurrent)
                _check_reach(model, "pretraining", pretraining, created)
                _check_predicts(created, pretraining)
        except TrainingRecipeError as error:
            raise TrainingRecipeError(f"model {model.key}: {error}") from error
        frozen = recipe.sentence_level.trained == "frozen"
        if frozen and not created.initialise_from_bert:
            raise TrainingRecipeError(
                f"model {model.key}: training.sentence_level.trained: a sentence level that begins "
                "at random must not be frozen"
            )
        _check_reach(model, "training", recipe, created)


def _check_predicts(created: Recipe, pretraining: TrainingRecipe) -> None:
    kinds = {objective.kind for objective in pretraining.objectives} & {"sp", "wp+sp"}
    # A class of settings in every architecture, though the registry knows it as a function.
    if kinds and not getattr(ENCODERS[created.architecture].config, "predicts_blocks", True):
        raise TrainingRecipeError(
            f"pretraining.objective: {min(kinds)} takes masked sentence blocks, which "
            f"{created.architecture} does not predict"
        )


def _check_reach(model: PlannedModel, table: str, recipe: TrainingRecipe, created: Recipe) -> None:
    if recipe.max_blocks > created.max_blocks:
        raise TrainingRecipeError(
            f"model {model.key}: {table}.max_blocks is {recipe.max_blocks}, and the model "
            f"reads {created.max_blocks}"
        )


def open_start(job: Comparison, model: PlannedModel, seed: int) -> Checkpoint:
    """Open the checkpoint that a model starts from, made if it is missing.

    Raises:
        CheckpointError: recipe and BERT checkpoint do not fit.
    """
    directory = job.start(model, seed)
    if not directory.exists():
        partial = directory.with_name(directory.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        recipe = Recipe.model_validate(creation_table(job.plan_file, model))
        create_checkpoint(recipe, str(job.bert), partial, seed=seed)
        replace_durably(partial, directory)
    return load_checkpoint(directory)


class DataReader:
    """Reads the corpus as each model does, once for all that read it in the same way."""

    def __init__(self, job: Comparison, progress: Progress) -> None:
        self._job = job
        self._progress = progress
        self._known: dict[object, tuple[TrainingCorpus, Sequence[TrainingSource]]] = {}

    def __call__(self, model: PlannedModel) -> Prepared:
        """Read it for a model: as stored block vectors, or as tokens alone.

        Raises:
            CorpusError: the corpus cannot be read, or lacks what is learned from.
            EncoderError: the checkpoint cannot be made or exported.
        """
        job, first = self._job, self._job.plan.seeds[0]
        recipe = recipe_of_run(job.plan, model, rate=model.rates[0], seed=first, steps=1)
        start = open_start(job, model, first)
        frozen = recipe.sentence_level.trained == "frozen"
        if frozen and PRECISION not in start.precisions:
            export_checkpoint(start, [PRECISION])
            start = load_checkpoint(start.directory)
        key = archive_key(start, precision=PRECISION, tokens_only=not frozen)
        cut = any("parts" in objective.parameters for objective in recipe.objectives)
        classes = recipe.learns_from_classes
        alike = (key, start.block_dimension, recipe.max_blocks, cut, classes)
        if alike not in self._known:
            encoded = self._encode(start, key)
            (data,) = read_training_data(
                [(job.files, encoded)], first, allow_shared=job.allow_shared, classes=classes
            )
            directories = [job.work / "neighbours"]
            sources = sources_of(recipe, start, [data], directories, self._progress)
            self._known[alike] = data, sources
        return Prepared(*self._known[alike], recipe)

    def _encode(self, start: Checkpoint, key: ArchiveKey) -> EncodedCorpus:
        # Models with one sentence level share an archive.
        directory = self._job.blocks / fingerprint(asdict(key))[:16]
        corpus = self._job.files.corpus
        if key.tokens_only:
            return read_tokens(corpus, directory, start, self._progress)
        encoder = OnnxEncoder(start, precision=PRECISION, threads=torch.get_num_threads())
        return keep_blocks(corpus, directory, encoder, self._progress)


def open_training_start(job: Comparison, run: Run) -> Checkpoint:
    """Open what a run starts from: the pretrained checkpoint of its model, or a new one.

    Raises:
        CheckpointError: the model is to be pretrained and is not yet.
    """
    if run.model.pretraining is None:
        return open_start(job, run.model, run.seed)
    return load_checkpoint(job.pretrained(run.model))


def measure_pace(
    job: Comparison, model: PlannedModel, prepared: Prepared, progress: TrainingProgress
) -> float:
    """Return the seconds of a training step, measured once and kept.

    Raises:
        EncoderError: training failed.
    """

    def measure() -> Cell:
        run = Run(model, model.rates[0], job.plan.seeds[0], _PACE_STEPS)
        shutil.rmtree(job.run_folder(run), ignore_errors=True)
        timer = StepTimer(progress)
        _train(job, run, prepared, timer, open_start(job, model, run.seed))
        drop_run(job, run)
        return {"seconds_per_step": statistics.median(timer.seconds[1:])}

    return float(keep_cell(job, f"pace-{model.key}", measure)["seconds_per_step"])


def train_run(job: Comparison, run: Run, prepared: Prepared, progress: TrainingProgress) -> Cell:
    """Train a model, or resume its run, and return what validation measured.

    Args:
        job: of the comparison.
        run: to be trained.
        prepared: what the model reads.
        progress: is notified.

    Returns:
        Rate, seed, steps, the figure before and its best value, with the step. A run whose
        loss was not finite has `diverged` instead.

    Raises:
        EncoderError: training failed.
    """

    def train() -> Cell:
        timer = StepTimer(progress)
        cell: Cell = {"rate": run.rate, "seed": run.seed, "steps": run.steps}
        try:
            start = open_training_start(job, run)
            report = _train(job, run, prepared, timer, start).report
        except NotFiniteError as error:
            return cell | {"diverged": f"step {error.step}: {error.what}"}
        cell |= {"figure": report.figure, "before": report.before, "best": report.best}
        return cell | {"best_step": report.best_step}

    return keep_cell(job, f"run-{run.name}", train)


def choose_rate(tried: Sequence[Cell], model: PlannedModel) -> float:
    """Return the rate with the best figure of validation, of equal ones the lowest.

    Raises:
        TrainingError: all runs diverged.
    """
    usable = [one for one in tried if "diverged" not in one]
    if not usable:
        raise TrainingError(
            f"{model.key}: all rates of {list(model.rates)} diverge: try lower ones"
        )
    best = max(usable, key=lambda one: (one["best"], -one["rate"]))
    return float(best["rate"])


def drop_run(job: Comparison, run: Run) -> None:
    """Delete the weights and the recipe of a run that is not needed any more."""
    shutil.rmtree(job.run_folder(run), ignore_errors=True)
    job.run_recipe(run).unlink(missing_ok=True)


def open_trained(
    job: Comparison, run: Run, prepared: Prepared, progress: TrainingProgress
) -> EncoderModel:
    """Return the model of a finished run, with its best weights.

    Raises:
        EncoderError: the files of the run are damaged.
    """
    return _train(job, run, prepared, progress, open_training_start(job, run)).model.eval()


def encode_documents(
    model: EncoderModel,
    prepared: Prepared,
    start: Checkpoint,
    rows: Sequence[int],
    max_blocks: int | None = None,
) -> Float32:
    """Encode documents of the corpus.

    Args:
        model: trained.
        prepared: what it reads.
        start: the checkpoint it started from.
        rows: D of the corpus.
        max_blocks: blocks of a document that are read; by default as many as in training.

    Returns:
        Float32[D, dimension].
    """
    archived = prepared.data.encoded.rows
    parts = [DocumentSlice(0, int(archived[row])) for row in rows]
    reader = prepared.reader(start, max_blocks)
    return encode_slices(model, reader, parts, from_tokens=prepared.from_tokens)


def keep_vectors(path: Path, make: Callable[[], Float32]) -> Float32:
    """Return the vectors of a file; if it is missing, they are made and written.

    Raises:
        OSError: the file cannot be written.
    """
    if not path.exists():
        partial = path.with_name(f"{path.stem}.partial.npy")
        np.save(partial, make(), allow_pickle=False)
        replace_durably(partial, path)
    vectors: Float32 = np.load(path, allow_pickle=False)
    return vectors


def _train(
    job: Comparison, run: Run, prepared: Prepared, progress: TrainingProgress, start: Checkpoint
) -> Trained:
    """Train, resume, or open what is trained already."""
    work = job.run_folder(run)
    encoder_job = EncoderJob(
        recipe=write_run_recipe(job, run),
        start=start,
        files=[job.files],
        output=work / "checkpoint",  # not written
        work=work,
        precisions=[],
        allow_shared=job.allow_shared,
    )
    return run_training(encoder_job, [prepared.data], prepared.sources, progress)

"""The job of `longmatch train`: a user's corpora and a recipe in, a trained checkpoint out.

Everything it computes on the way lies in a work directory, and the same call goes on from there:
block vectors, lexical neighbours, the state of the training loop.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder.checkpoint import TERMS, Checkpoint
from encoder.drawn import Part
from encoder.onnx_encoder import OnnxEncoder
from encoder.term_channel import TermChannel
from index.batches import Source
from index.encoded_corpus import keep_blocks
from index.errors import CorpusError
from index.leaks import TRAIN
from index.observer import Observer
from index.section_starts import find_section_starts
from index.training_data import TrainingCorpus, data_fingerprint, read_training_data
from index.training_draws import draw_of, find_sources
from index.training_files import CorpusFiles, TrainingJob
from index.training_report import RUN, Trained, make_report
from index.validation import choose_figure, measure
from index.vector_index import Float32

if TYPE_CHECKING:
    from encoder.models.catalogue import Model
    from encoder.training.drawing import Reader
    from encoder.training.observer import TrainingObserver
    from encoder.training.recipe import TrainingRecipe


class _TimeIsUpError(Exception):
    """The seconds of a job are over."""


def prepare_data(
    job: TrainingJob, encoder: OnnxEncoder, observer: Observer
) -> tuple[TrainingCorpus, ...]:
    """Encode the block vectors of all corpora, read what is known of them, refuse leaks.

    Raises:
        CorpusError: as `keep_blocks` and `read_training_data`; or the output is there already.
        ArchiveError: the work directory is damaged, or another encoder made it.
        TrainingRecipeError: the recipe cannot be followed.
    """
    if job.output.exists():
        raise CorpusError(f"{job.output}: is there already: name a directory to be made")
    recipe = _read_recipe(job)
    encoded = [
        (files, keep_blocks(files.corpus, _directory_of(job, files) / "blocks", encoder, observer))
        for files in job.files
    ]
    return read_training_data(encoded, recipe.seed)


def prepare_sources(
    job: TrainingJob, data: Sequence[TrainingCorpus], observer: Observer
) -> list[Source]:
    """Find the lexical neighbours of the training part of each corpus, and sections if needed.

    Raises:
        CorpusError: scikit-learn is not installed, or a corpus has too few words in common.
    """
    recipe = _read_recipe(job)
    directories = [_directory_of(job, one.files) / "neighbours" for one in data]
    sources = find_sources(data, directories, recipe.max_blocks, observer)
    if not any("parts" in objective.parameters for objective in recipe.objectives):
        return sources
    return [
        replace(s, section_starts=find_section_starts(s.corpus, job.start, observer))
        for s in sources
    ]


def run_training(
    job: TrainingJob,
    data: Sequence[TrainingCorpus],
    sources: Sequence[Source],
    observer: "TrainingObserver",
) -> Trained:
    """Train, or go on with training; `write_output` makes a checkpoint of it.

    Args:
        job: what to train.
        data: of `prepare_data`.
        sources: of `prepare_sources`.
        observer: hears of every step.

    Raises:
        CorpusError: the data has not what the recipe learns from.
        EncoderError: the checkpoint has no weights, or training failed.
    """
    from encoder.training.drawing import training_device
    from encoder.training.loop import TrainingPlan, train
    from encoder.training.term_model import open_model, read_or_fit_channel

    recipe = _read_recipe(job)
    archives = [one.encoded.archive for one in data]
    rows = [one.encoded.rows[one.rows(TRAIN)] for one in data]
    channel = read_or_fit_channel(job.start, recipe, archives, rows, _terms_file(job, data, recipe))
    model = open_model(job.start, recipe, channel).to(training_device())
    reader = _reader(job.start, data, recipe, channel)
    figure = choose_figure(data)

    def validate(trained: "Model") -> float:
        return measure(data, _encoding(trained, reader, recipe), figure, recipe.max_blocks)

    plan = TrainingPlan(
        recipe=recipe,
        objectives=_objectives(job.start, recipe, sources, reader, model),
        validate=validate,
        data_fingerprint=_fingerprint(job.start, data),
    )
    run = job.work / RUN
    limited = _TimeLimit(observer, job.seconds)
    try:
        train(model, plan, run, limited)
    except _TimeIsUpError:
        _load_best(model, plan, run)
    report = make_report(job, recipe, [one.found for one in data], figure, out_of_time=limited.over)
    return Trained(model, channel, report)


class _TimeLimit:
    """Passes on what it hears, and ends the run when its time is up."""

    def __init__(self, observer: "TrainingObserver", seconds: float | None) -> None:
        self._observer = observer
        self._end = None if seconds is None else time.monotonic() + seconds
        self.over = False
        self.started = observer.started
        self.validated = observer.validated

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Pass it on, or raise."""
        self._observer.stepped(step, figures)
        if self._end is not None and time.monotonic() >= self._end:
            self.over = True
            raise _TimeIsUpError


def _read_recipe(job: TrainingJob) -> "TrainingRecipe":
    from encoder.training.recipe_file import read_training_recipe

    recipe = read_training_recipe(job.recipe)
    return recipe if job.steps is None else replace(recipe, steps=job.steps)


def _directory_of(job: TrainingJob, files: CorpusFiles) -> Path:
    path = str(files.corpus.resolve())
    name = "".join(c if c.isalnum() else "-" for c in files.corpus.stem)[:40]
    return job.work / f"{name}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _reader(
    start: Checkpoint,
    data: Sequence[TrainingCorpus],
    recipe: "TrainingRecipe",
    channel: TermChannel,
) -> "Reader":
    from encoder.training.drawing import Reader
    from encoder.training.term_features import TermReader

    archives = [one.encoded.archive for one in data]
    return Reader(
        archives=archives,
        checkpoint=start,
        max_blocks=recipe.max_blocks,
        read_terms=TermReader(archives, channel) if channel.table.width else None,
        trained_blocks=recipe.sentence_level.blocks,
    )


def _terms_file(job: TrainingJob, data: Sequence[TrainingCorpus], recipe: "TrainingRecipe") -> Path:
    """Return where the term table of a run is kept: that of another run is another file."""
    from encoder.training.recipe import recipe_fingerprint

    of_run = f"{recipe_fingerprint(recipe)} {_fingerprint(job.start, data)}"
    return job.work / RUN / hashlib.sha256(of_run.encode()).hexdigest()[:16] / TERMS


def _objectives(
    start: Checkpoint,
    recipe: "TrainingRecipe",
    sources: Sequence[Source],
    reader: "Reader",
    model: "Model",
) -> list[Any]:
    from encoder.training.drawing import new_objective
    from encoder.training.output import read_vocabulary

    vocabulary = read_vocabulary(start)
    objectives = []
    for number, objective in enumerate(recipe.objectives):
        draw = draw_of(objective, sources, recipe.documents)
        draw(np.random.default_rng(0))  # what the data does not have is said before training
        seed = recipe.seed + number
        made = new_objective(objective, draw, reader, model.config, vocabulary, seed)
        made.head.to(next(model.parameters()).device)
        objectives.append(made)
    return objectives


def _encoding(
    model: "Model", reader: "Reader", recipe: "TrainingRecipe"
) -> Callable[[Sequence[Part]], Float32]:
    from encoder.training.drawing import encode_parts

    from_tokens = recipe.sentence_level.trained != "frozen"
    return lambda parts: encode_parts(model, reader, parts, from_tokens=from_tokens)


def _fingerprint(start: Checkpoint, data: Sequence[TrainingCorpus]) -> str:
    return hashlib.sha256(f"{start.fingerprint} {data_fingerprint(data)}".encode()).hexdigest()


def _load_best(model: "Model", plan: Any, run: Path) -> None:
    from encoder.training.optimiser import trained_parameters
    from encoder.training.state import load_best

    load_best(run, trained_parameters(model, plan.objectives))
    model.eval()

"""One run of an ablation: the product's training loop, same batches, fixed number of steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.ablation.data import AblationData
from encoder.arrays import Float32
from encoder.models.architecture import EncoderModel
from training.batch import encode
from training.collate import Reader, encode_slices, new_objective
from training.data.corpus import data_fingerprint
from training.data.sampling import DocumentSlice, sampler_of
from training.loop import TrainingPlan, Validated, train
from training.objectives import Objective, VectorTask, step_generator
from training.progress import SilentTrainingProgress
from training.recipe import TrainingRecipe, parse_training_recipe
from training.trained_checkpoint import read_vocabulary

_SAVED_EVERY = 50  # steps


@dataclass(frozen=True, slots=True)
class Run:
    """What is trained on, and by which recipe.

    Attributes:
        data: of the ablation.
        reader: of its documents.
        recipe: steps, rates and objectives; its seed determines all sampling.
    """

    data: AblationData
    reader: Reader
    recipe: TrainingRecipe


def make_recipe(seed: int, settings: Mapping[str, Any]) -> TrainingRecipe:
    """Make the recipe of a run that is validated at its two ends only.

    Args:
        seed: of the run.
        settings: fields and tables of a recipe, but for `objectives`: kinds, or tables of one.
    """
    fields = dict(settings)
    objectives = [
        {"kind": one} if isinstance(one, str) else one for one in fields.pop("objectives")
    ]
    ends = {"validation_interval": fields["steps"], "checkpoint_interval": _SAVED_EVERY}
    named = {"name": "ablation", "seed": seed, "objective": objectives}
    return parse_training_recipe(named | fields | ends)


def new_reader(data: AblationData, max_blocks: int, *, width: int = 0) -> Reader:
    """Make the reader of all corpora.

    Args:
        data: of the ablation.
        max_blocks: read of a document.
        width: of the block vectors of a model that computes all of them from tokens; 0 to read
            the cached ones.
    """
    archives = [one.encoded.archive for one in data.corpora]
    if width:
        archives = [archive.without_vectors(width) for archive in archives]
    return Reader(archives, data.checkpoint, max_blocks, trained_blocks=max_blocks if width else 0)


def fit(model: EncoderModel, run: Run, directory: Path) -> None:
    """Train a model for the steps of a recipe; the last weights count.

    Weights are not selected by validation, which would bias the results. Instead the loss of one
    batch that no step uses is monitored: a run that does not lower it has failed and leaves the
    model unchanged.

    Args:
        model: is trained.
        run: on what, and how.
        directory: state of the run, which can be resumed.
    """
    objectives = _objectives(model, run)
    plan = TrainingPlan(
        recipe=run.recipe,
        objectives=objectives,
        validate=_loss(objectives, run.recipe.seed),
        lower_is_better=True,
        data_fingerprint=data_fingerprint(run.data.corpora),
    )
    train(model, plan, directory, SilentTrainingProgress())


def encode_corpora(model: EncoderModel, data: AblationData, reader: Reader) -> list[Float32]:
    """Return the document vectors [N, dimension] of each corpus."""
    from_tokens = reader.trained_blocks > 0
    return [
        encode_slices(
            model,
            reader,
            [DocumentSlice(number, row) for row in one.encoded.rows.tolist()],
            from_tokens=from_tokens,
        )
        for number, one in enumerate(data.corpora)
    ]


def tokens_read(data: AblationData, max_blocks: int) -> int:
    """Return how many tokens the first blocks of a document have, the mean over all documents."""
    archives = [one.encoded.archive for one in data.corpora]
    tokens = sum(archive.mean_tokens(max_blocks) * len(archive) for archive in archives)
    return round(tokens / sum(map(len, archives)))


def _objectives(model: EncoderModel, run: Run) -> list[Objective]:
    vocabulary = read_vocabulary(run.data.checkpoint)
    objectives = []
    sources = [replace(source, max_blocks=run.reader.max_blocks) for source in run.data.sources]
    for number, recipe in enumerate(run.recipe.objectives):
        sampler = sampler_of(recipe, sources, run.recipe.documents)
        seed = run.recipe.seed + number
        made = new_objective(recipe, sampler, run.reader, model.config, vocabulary, seed)
        made.head.to(next(model.parameters()).device)
        objectives.append(made)
    return objectives


def _loss(objectives: Sequence[Objective], seed: int) -> Callable[[EncoderModel], Validated]:
    """Return what sums the losses of a batch of step 0, which no run takes."""

    def figure(model: EncoderModel) -> Validated:
        device = next(model.parameters()).device
        losses = []
        for stream, objective in enumerate(objectives, start=1):
            task = objective.sample(step_generator(seed, 0, stream))
            if isinstance(task, VectorTask):
                losses.append(task.loss(encode(model, task.documents.to(device))))
            else:
                losses.append(task.loss(model))
        return Validated(float(torch.stack(losses).sum()))

    return figure

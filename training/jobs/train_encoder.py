"""The job of `longmatch lab train`: from corpora and a recipe to a trained checkpoint.

Block vectors and the state of the training loop are stored in a work directory, from which the same
call resumes.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder
from encoder.terms.term_channel import open_term_channel
from evaluation.encoded_corpus import keep_blocks, keep_tokens
from index.errors import CorpusError
from index.progress import Progress
from training.collate import Reader, new_objective, training_device
from training.data.corpus import TrainingCorpus, data_fingerprint, read_training_data
from training.data.files import CorpusFiles, EncoderJob, read_recipe, time_limit
from training.data.pair_files import TRAIN
from training.data.sampling import TrainingSource, sampler_of
from training.jobs.output import RUN, Trained, make_report
from training.jobs.validation import (
    LOSS,
    choose_figure,
    held_out_batches,
    held_out_loss,
    measure,
    model_similarities,
)
from training.loop import TrainingPlan, Validated, train
from training.models.architecture import EncoderModel
from training.objectives import Objective
from training.progress import TrainingProgress
from training.recipe import TrainingRecipe, pretrains, reads_tokens_only
from training.term_channel import fit_channel, open_model

# Documents of a corpus that a validation searches, at most.
_SEARCHED = 20_000
_SEARCHED_FROM_TOKENS = 400  # where every block is encoded anew


def prepare_data(
    job: EncoderJob, encoder: Encoder, progress: Progress
) -> tuple[TrainingCorpus, ...]:
    """Encode the block vectors of all corpora, read their judgements, check for data leakage.

    No block vectors are computed where none would be read: if a step reads all blocks as tokens.
    The texts are then cut into blocks of token ids, and nothing else.
    """
    if job.output.exists():
        raise CorpusError(f"{job.output}: is there already: name a directory to be made")
    recipe = read_recipe(job)
    encoded = []
    for files in job.files:
        directory = _directory_of(job, files)
        if reads_tokens_only(recipe):
            kept = keep_tokens(files.corpus, directory / "tokens", job.start, progress)
        else:
            kept = keep_blocks(files.corpus, directory / "blocks", encoder, progress)
        encoded.append((files, kept))
    return read_training_data(
        encoded,
        recipe.seed,
        allow_shared=job.allow_shared,
    )


def run_training(
    job: EncoderJob,
    data: Sequence[TrainingCorpus],
    sources: Sequence[TrainingSource],
    progress: TrainingProgress,
) -> Trained:
    """Train, or resume training; `write_output` makes a checkpoint of the result.

    Args:
        data: of `prepare_data`.
        sources: of `find_sources`.
    """
    recipe = read_recipe(job)
    archives = [corpus.texts.archive for corpus in data]
    rows = [corpus.texts.rows[corpus.rows(TRAIN)] for corpus in data]
    fitted = fit_channel(job.start, recipe, archives, rows)
    model = open_model(job.start, recipe, fitted).to(training_device())
    channel = fitted or open_term_channel(job.start)
    reads_terms = channel.table.width and not recipe.distils  # which looks at no document vector
    reader = Reader(
        archives=archives,
        checkpoint=job.start,
        max_blocks=recipe.max_blocks,
        channel=channel if reads_terms else None,
        trained_blocks=recipe.sentence_level.blocks,
        chunk=recipe.chunk,
    )
    objectives = _objectives(recipe, sources, reader, model)
    plan = TrainingPlan(
        recipe=recipe,
        objectives=objectives,
        validate=_validation(recipe, data, reader, objectives),
        lower_is_better=pretrains(recipe),
        data_fingerprint=_fingerprint(job.start, data),
        stop=time_limit(job.seconds),
    )
    state = train(model, plan, job.work / RUN, progress)
    figure = LOSS if pretrains(recipe) else choose_figure(data)
    facts = [corpus.found.facts() for corpus in data]
    return Trained(model, channel, make_report(job, recipe, figure, facts, state))


def _validation(
    recipe: TrainingRecipe,
    data: Sequence[TrainingCorpus],
    reader: Reader,
    objectives: Sequence[Objective[EncoderModel]],
) -> Callable[[EncoderModel], Validated]:
    """Return the validation of a run: by its loss if it pretrains, else by what data allows."""
    if pretrains(recipe):
        batches = held_out_batches(data, recipe.documents)
        return held_out_loss(recipe, objectives, batches, reader)
    searched = _SEARCHED if recipe.sentence_level.trained == "frozen" else _SEARCHED_FROM_TOKENS
    return lambda trained: Validated(
        measure(data, model_similarities(trained, reader, recipe), recipe.max_blocks, searched)
    )


def _directory_of(job: EncoderJob, files: CorpusFiles) -> Path:
    path = str(files.corpus.resolve())
    name = "".join(c if c.isalnum() else "-" for c in files.corpus.stem)[:40]
    return job.work / f"{name}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _objectives(
    recipe: TrainingRecipe,
    sources: Sequence[TrainingSource],
    reader: Reader,
    model: EncoderModel,
) -> list[Objective[EncoderModel]]:
    objectives = []
    for number, objective in enumerate(recipe.objectives):
        sampler = sampler_of(objective, sources, recipe.documents)
        sampler(np.random.default_rng(0))  # fails before training where the data lacks something
        seed = recipe.seed + number
        made = new_objective(objective, sampler, reader, model.config, seed)
        made.head.to(model.device)
        objectives.append(made)
    return objectives


def _fingerprint(start: Checkpoint, data: Sequence[TrainingCorpus]) -> str:
    return hashlib.sha256(f"{start.fingerprint} {data_fingerprint(data)}".encode()).hexdigest()

"""The model that training works on: the start, given a term channel where the recipe says so."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from encoder.block_archive import BlockArchive
from encoder.checkpoint import Checkpoint
from encoder.create import load_model
from encoder.durable_files import put_in_place
from encoder.models.catalogue import Model, new_model
from encoder.models.smith import Smith, SmithConfig
from encoder.term_channel import TermChannel, open_term_channel
from encoder.terms import (
    Terms,
    TermVocabulary,
    read_term_table,
    read_term_vocabulary,
    write_term_table,
)
from encoder.tokenizer import open_tokenizer
from encoder.training.errors import TrainingRecipeError
from encoder.training.recipe import TermRecipe, TrainingRecipe
from encoder.training.term_table import begin_as_terms, fit_term_table


def read_or_fit_channel(
    start: Checkpoint,
    recipe: TrainingRecipe,
    archives: Sequence[BlockArchive],
    rows: Sequence[NDArray[np.int64]],
    kept: Path,
) -> TermChannel:
    """Return the term channel that the model is trained with.

    Args:
        start: whose own channel is used where it has one.
        recipe: says how large a new one is.
        archives: of the corpora.
        rows: of each, those of the documents to fit a new one on.
        kept: the file that a new table is kept in for a run that is resumed.

    Raises:
        EncoderError: there are too few documents to fit one on.
        CheckpointError: the table of the start or of the run is damaged.
    """
    channel = open_term_channel(start)
    if channel.table.width or not recipe.terms.dimension:
        return channel
    vocabulary = read_term_vocabulary(open_tokenizer(start), recipe.terms.buckets)
    if not kept.exists():
        corpora = [
            _count(vocabulary, archive, some)
            for archive, some in zip(archives, rows, strict=True)
            if len(some)
        ]
        table = fit_term_table(corpora, vocabulary.rows, recipe.terms, recipe.seed)
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(kept.name + ".partial")
        write_term_table(partial, table)
        put_in_place(partial, kept)
    return TermChannel(vocabulary, read_term_table(kept.read_bytes(), str(kept)))


def open_model(start: Checkpoint, recipe: TrainingRecipe, channel: TermChannel) -> Model:
    """Load the model of the start, with a term channel where it is to be given one.

    Raises:
        CheckpointError: the start has no weights, or they do not fit its configuration.
        TrainingRecipeError: the recipe gives a term channel to an architecture that takes none.
    """
    model = load_model(start)
    terms = recipe.terms
    config = replace(model.config, dropout=recipe.dropout)
    grow = model.config.term_features != channel.table.width
    if grow:
        if not isinstance(config, SmithConfig):
            raise TrainingRecipeError(f"[terms]: a {start.architecture} has no term channel")
        config = _with_channel(config, terms, channel.table.width)
    torch.manual_seed(recipe.seed)
    grown = new_model(config)
    grown.load_state_dict(model.state_dict(), strict=not grow)
    if grow and isinstance(grown, Smith):
        begin_as_terms(grown.document_encoder, terms, recipe.seed)
    return grown.eval()


def _with_channel(config: SmithConfig, terms: TermRecipe, features: int) -> SmithConfig:
    return replace(
        config,
        dimension=config.dimension + terms.dimension,
        term_features=features,
        term_dimension=terms.dimension,
        term_buckets=terms.buckets,
    )


def _count(
    vocabulary: TermVocabulary, archive: BlockArchive, rows: NDArray[np.int64]
) -> list[Terms]:
    return [vocabulary.count(archive.blocks(int(row))) for row in rows]

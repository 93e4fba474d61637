"""The model that training works on: the start, with a new term channel where the recipe says so."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from encoder.block_archive import BlockArchive
from encoder.checkpoint import SKETCH, Checkpoint
from encoder.create import load_model
from encoder.durable_files import put_in_place
from encoder.models.catalogue import Model, new_model
from encoder.models.smith import Smith, SmithConfig
from encoder.sketch import TermSketch, read_term_sketch, write_term_sketch
from encoder.term_channel import (
    TermChannel,
    new_sketch_vocabulary,
    no_sketch,
    open_term_channel,
)
from encoder.terms import (
    Terms,
    TermVocabulary,
    count_words,
    read_term_table,
    read_term_vocabulary,
    write_term_table,
)
from encoder.tokenizer import open_tokenizer
from encoder.training.errors import TrainingRecipeError
from encoder.training.recipe import TermRecipe, TrainingRecipe
from encoder.training.term_table import begin_as_terms, fit_term_table, term_weights

_OF_CHANNEL = frozenset(
    {"term_projection.weight", "term_projection.bias", "balance", "sketch_balance"}
)


def read_or_fit_channel(
    start: Checkpoint,
    recipe: TrainingRecipe,
    archives: Sequence[BlockArchive],
    rows: Sequence[NDArray[np.int64]],
    kept: Path,
) -> TermChannel:
    """Return the term channel that the model is trained with.

    Args:
        start: whose own channel is used where the recipe asks for none, or where it has one and
            there are too few documents to fit another.
        recipe: says how large a new one is.
        archives: of the corpora.
        rows: of each, those of the documents to fit a new one on.
        kept: the file that a new table is kept in for a run that is resumed; a sketch beside it.

    Raises:
        EncoderError: there are too few documents to fit one on.
        CheckpointError: the table of the start or of the run is damaged.
    """
    channel = open_term_channel(start)
    too_few = sum(map(len, rows)) <= recipe.terms.span
    if not recipe.terms.dimension or (channel.table.width and too_few):
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
    sketch = _read_or_fit_sketch(start, recipe, archives, rows, kept.with_name(SKETCH))
    return TermChannel(vocabulary, read_term_table(kept.read_bytes(), str(kept)), sketch)


def _read_or_fit_sketch(
    start: Checkpoint,
    recipe: TrainingRecipe,
    archives: Sequence[BlockArchive],
    rows: Sequence[NDArray[np.int64]],
    kept: Path,
) -> TermSketch:
    if not recipe.terms.sketch:
        return no_sketch()
    vocabulary = new_sketch_vocabulary(start)
    if not kept.exists():
        corpora = [
            [count_words(vocabulary, archive.blocks(int(row))) for row in some]
            for archive, some in zip(archives, rows, strict=True)
            if len(some)
        ]
        weights = term_weights(corpora, vocabulary.rows)
        partial = kept.with_name(kept.name + ".partial")
        write_term_sketch(partial, TermSketch(vocabulary, weights, recipe.terms.sketch))
        put_in_place(partial, kept)
    return read_term_sketch(kept.read_bytes(), str(kept), vocabulary, recipe.terms.sketch)


def open_model(start: Checkpoint, recipe: TrainingRecipe, channel: TermChannel) -> Model:
    """Load the model of the start, with a new term channel where it is to be given one.

    Raises:
        CheckpointError: the start has no weights, or they do not fit its configuration.
        TrainingRecipeError: the recipe gives a term channel to an architecture that takes none.
    """
    model = load_model(start)
    terms = recipe.terms
    config = replace(model.config, dropout=recipe.dropout)
    new = not _same(open_term_channel(start), channel)
    if new:
        if not isinstance(config, SmithConfig):
            raise TrainingRecipeError(f"[terms]: a {start.architecture} has no term channel")
        config = _with_channel(config, terms, channel.table.width)
    torch.manual_seed(recipe.seed)
    grown = new_model(config)
    kept = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not new or name.removeprefix("document_encoder.") not in _OF_CHANNEL
    }
    grown.load_state_dict(kept, strict=not new)
    if new and isinstance(grown, Smith):
        begin_as_terms(grown.document_encoder, terms, recipe.seed)
    return grown.eval()


def _with_channel(config: SmithConfig, terms: TermRecipe, features: int) -> SmithConfig:
    return replace(
        config,
        dimension=config.block_part + terms.dimension + terms.sketch,
        term_features=features,
        term_dimension=terms.dimension,
        term_buckets=terms.buckets,
        sketch_dimension=terms.sketch,
    )


def _same(one: TermChannel, other: TermChannel) -> bool:
    return (one.width, one.vocabulary.rows) == (other.width, other.vocabulary.rows) and bool(
        np.array_equal(one.table.vectors, other.table.vectors)
    )


def _count(
    vocabulary: TermVocabulary, archive: BlockArchive, rows: NDArray[np.int64]
) -> list[Terms]:
    return [vocabulary.count(archive.blocks(int(row))) for row in rows]

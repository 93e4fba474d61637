"""Similarities of documents for validation: by a model's vectors, or by aligning its blocks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from encoder.alignment.scoring import align
from encoder.alignment.space import MIN_SAMPLE, fit_space, neutral_space, sample_blocks
from encoder.arrays import Float32, Int64
from training.data.batch_specs import DocumentSlice
from training.jobs.validation import Similarities

if TYPE_CHECKING:
    from encoder.models.architecture import EncoderModel
    from training.collate import Reader
    from training.recipe import TrainingRecipe


def model_similarities(
    model: "EncoderModel", reader: "Reader", recipe: "TrainingRecipe"
) -> Similarities:
    """Return the similarities that a recipe trains: by alignment if an objective does."""
    from training.collate import encode_block_slices, encode_slices

    if recipe.aligns:
        return lambda parts, queries: align_all(
            encode_block_slices(model, reader, parts, recipe.precision), queries
        )
    from_tokens = recipe.sentence_level.trained != "frozen"

    def cosines(parts: Sequence[DocumentSlice], queries: Int64) -> Float32:
        vectors = encode_slices(model, reader, parts, from_tokens=from_tokens)
        found: Float32 = vectors[queries] @ vectors.T
        return found

    return cosines


def align_all(documents: Sequence[Float32], queries: Int64) -> Float32:
    """Align queries with all documents, in a space that is fitted to these.

    Args:
        documents: block vectors [S, H] of D documents.
        queries: Int64[Q], which of them are queries.

    Returns:
        Float32[Q, D].
    """
    sample = sample_blocks(documents)
    enough = len(sample) >= MIN_SAMPLE
    space = fit_space(sample) if enough else neutral_space(sample.shape[1])
    aligned = [space.project(one) for one in documents]
    return np.stack([align(aligned[query], aligned) for query in queries.tolist()])

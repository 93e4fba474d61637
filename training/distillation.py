"""Distillation: a smaller sentence level learns the block vectors of its teacher.

The teacher is the checkpoint that the run starts from; its block vectors are those of the archive.
Search compares blocks in two ways, so the student learns both: as they are, of which the document
vector is made, and in the alignment space, where directions of little variance count as much as
the others (`encoder/alignment/space.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.alignment.space import AlignmentSpace
from training.batch import DocumentBatch, encode_texts, texts_of
from training.errors import TrainingRecipeError
from training.models.architecture import EncoderConfig, EncoderModel
from training.objectives import Task
from training.recipe import SentenceLevelRecipe, configured

_LAYER = re.compile(r"^block_encoder\.layers\.(\d+)\.")


def smaller_config(config: EncoderConfig, level: SentenceLevelRecipe) -> EncoderConfig:
    """Return the configuration of a student.

    Args:
        config: of the model that its layers are taken from.
        level: says which layers it keeps, and how many of these read groups of tokens.
    """
    changed: dict[str, int] = {}
    if level.kept_layers:
        changed["sentence_layers"] = len(level.kept_layers)
    if level.pooled_layers:
        changed |= {"pooled_layers": level.pooled_layers, "pooled_tokens": level.pooled_tokens}
    start: Any = config
    if level.kept_layers and level.kept_layers[-1] >= start.sentence_layers:
        raise TrainingRecipeError(
            f"sentence_level.kept_layers: {level.kept_layers[-1]} is no layer of the "
            f"{start.sentence_layers}, which are numbered from 0"
        )
    try:
        smaller: EncoderConfig = configured(partial(replace, start), **changed)
    except ValueError as error:
        raise TrainingRecipeError(f"sentence_level: {error}") from error
    return smaller


def weights_of_layers(weights: Mapping[str, Tensor], kept: Sequence[int]) -> dict[str, Tensor]:
    """Return the weights of a model, of its sentence level those of the layers that are kept.

    Args:
        weights: by the name of each parameter.
        kept: numbers of layers, from 0, ascending.
    """
    place_of = {layer: place for place, layer in enumerate(kept)}
    chosen = {}
    for name, tensor in weights.items():
        found = _LAYER.match(name)
        if found is None:
            chosen[name] = tensor
        elif (layer := int(found[1])) in place_of:
            rest = name[found.end() :]
            chosen[f"block_encoder.layers.{place_of[layer]}.{rest}"] = tensor
    return chosen


class AlignmentProjection(nn.Module):
    """The projection into an alignment space; nothing of it is trained."""

    mean: Tensor
    projection: Tensor

    def __init__(self, space: AlignmentSpace) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(space.mean.copy()))
        self.register_buffer("projection", torch.from_numpy(space.projection.copy()))

    def forward(self, vectors: Tensor) -> Tensor:
        """Project block vectors [N, H] -> [N, D], of unit norm."""
        return F.normalize((vectors - self.mean) @ self.projection, dim=-1)


def block_vector_losses(
    student: Tensor, teacher: Tensor, projection: AlignmentProjection
) -> dict[str, Tensor]:
    """Return how far block vectors are from those of the teacher.

    Args:
        student: [N, H] of unit norm.
        teacher: [N, H] of unit norm, of the same blocks.

    Returns:
        [] 1 - cosine, the mean over the blocks: of the "vectors", and "aligned" in the space.
    """
    return {
        "vectors": 1 - (student * teacher).sum(-1).mean(),
        "aligned": 1 - (projection(student) * projection(teacher)).sum(-1).mean(),
    }


def block_vectors_task(
    documents: DocumentBatch, projection: AlignmentProjection
) -> Task[EncoderModel]:
    """Learn the stored vectors of the blocks that are read from their tokens.

    Args:
        documents: with the teacher's block vectors, and the tokens of some of them.
    """
    texts = texts_of(documents)
    teacher = documents.block_vectors[texts.documents, texts.places]

    def losses(model: EncoderModel) -> Mapping[str, Tensor]:
        device = model.device
        student = encode_texts(model, documents.to(device))
        return block_vector_losses(student, teacher.to(device), projection)

    return losses

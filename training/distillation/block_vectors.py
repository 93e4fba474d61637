"""Distillation of block vectors: a smaller sentence level learns those of its teacher.

The teacher is the checkpoint that the run starts from; its block vectors are those of the archive.
Search compares blocks in two ways, so the student learns both: as they are, of which the document
vector is made, and in the alignment space, where directions of little variance count as much as
the others (`encoder/alignment/space.py`). A student with the vectors of its teacher has its
alignment scores, too.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.alignment.space import AlignmentSpace
from encoder.models.architecture import EncoderModel
from training.batch import DocumentBatch, encode_texts, texts_of
from training.objectives import ModelTask


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
        projection: into the alignment space.

    Returns:
        [] 1 - cosine, the mean over the blocks: of the "vectors", and "aligned" in the space.
    """
    return {
        "vectors": 1 - (student * teacher).sum(-1).mean(),
        "aligned": 1 - (projection(student) * projection(teacher)).sum(-1).mean(),
    }


def block_vectors_task(
    documents: DocumentBatch, projection: AlignmentProjection
) -> ModelTask[EncoderModel]:
    """Learn the stored vectors of the blocks that are read from their tokens.

    Args:
        documents: with the teacher's block vectors, and the tokens of some of them.
        projection: the head of the objective.

    Raises:
        ValueError: no block is read from its tokens.
    """
    texts = texts_of(documents)
    teacher = documents.block_vectors[texts.documents, texts.places]

    def losses(model: EncoderModel) -> dict[str, Tensor]:
        device = projection.mean.device
        student = encode_texts(model, documents.to(device))
        return block_vector_losses(student, teacher.to(device), projection)

    return ModelTask(losses)

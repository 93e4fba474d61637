"""Objectives: what a step of training learns from, sampled anew in each step.

An objective samples the task of a step from a generator that depends on seed and step only, so that
a run can be resumed without the state of any iterator.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.batch import DocumentBatch, encode
from training.models.architecture import EncoderModel, TrainableModel

_FIRST_TEMPERATURE = 0.05
_LOWEST_TEMPERATURE = 0.01

M = TypeVar("M", bound=TrainableModel)

# model -> [] losses by name, whose sum is the loss of a step
Task = Callable[[M], Mapping[str, Tensor]]


def vectors_task(
    chunks: Sequence[DocumentBatch], loss: Callable[[Tensor], Tensor]
) -> Task[EncoderModel]:
    """Return the task of a loss of document vectors alone.

    Of several chunks, the activations of one at a time are held: each is encoded again, with the
    same dropout, when the gradient of its vectors is known. The gradients are those of one batch.

    Args:
        chunks: of the batch; at least one.
        loss: [D, dimension] vectors of all documents, in float32 -> [] loss.
    """

    def losses(model: EncoderModel) -> Mapping[str, Tensor]:
        batches = (chunk.to(model.device) for chunk in chunks)
        encoded = encode if len(chunks) == 1 else _encode_with_few_activations
        vectors = torch.cat([encoded(model, batch) for batch in batches])
        with torch.autocast(vectors.device.type, enabled=False):
            return {"vectors": loss(vectors)}

    return losses


def _encode_with_few_activations(model: EncoderModel, batch: DocumentBatch) -> Tensor:
    def encode_batch(_: Tensor) -> Tensor:
        return encode(model, batch)

    # The argument says whose random numbers, which dropout takes, are kept for the second time.
    vectors: Tensor = checkpoint(encode_batch, batch.block_mask, use_reentrant=False)
    return vectors


@dataclass(frozen=True, slots=True)
class Objective(Generic[M]):
    """One term of the training loss.

    Attributes:
        name: its name in curves and messages; of its own in a run.
        weight: of its loss in the sum.
        sample: returns the task of a step; depends on the generator alone.
        head: what is trained for this objective only (`PretrainingHead`, `Temperature`).
    """

    name: str
    weight: float
    sample: Callable[[torch.Generator], Task[M]]
    head: nn.Module = field(default_factory=nn.Module)


class Temperature(nn.Module):
    """A temperature: a number, or "learned": from 0.05 on, and never below 0.01."""

    def __init__(self, temperature: float | str) -> None:
        super().__init__()
        learned = isinstance(temperature, str)
        start = _FIRST_TEMPERATURE if isinstance(temperature, str) else temperature
        self.logarithm = nn.Parameter(torch.tensor(math.log(start)), requires_grad=learned)
        self.lowest = _LOWEST_TEMPERATURE if learned else 0.0

    def forward(self) -> Tensor:
        """Return the temperature: []."""
        return self.logarithm.exp().clamp(min=self.lowest)


def step_generator(seed: int, step: int, *stream: int) -> torch.Generator:
    """Return a generator that depends on these numbers only."""
    return torch.Generator().manual_seed(step_seed(seed, step, *stream))


def step_seed(seed: int, step: int, *stream: int) -> int:
    """Mix numbers into one seed of 64 bits; close numbers give unrelated seeds."""
    mixed = 0
    for number in (seed, step, *stream):
        # The finaliser of SplitMix64: every bit of the input changes every bit of the output.
        mixed = (mixed + number + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed

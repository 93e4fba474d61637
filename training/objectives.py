"""Objectives: the batch that a step samples, and its loss.

An objective samples the task of a step from a generator that depends on seed and step only, so that
a run can be resumed without the state of any iterator. Two kinds of tasks exist because only
a loss that needs nothing but document vectors can be computed in chunks of a large batch
(`training.loop.cached_backward`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from training.batch import BlockTexts, DocumentBatch, texts_of
from training.losses import (
    BlockHead,
    JointHead,
    WordHead,
    block_loss,
    joint_losses,
    word_loss,
)
from training.models.architecture import EncoderModel, TrainableModel

_BECOMES_MASK = 0.8
_BECOMES_RANDOM = 0.1


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The token ids that masking has to know.

    Attributes:
        size: number of token ids.
        mask_token: id of [MASK].
        special_tokens: ids that are never masked: [CLS], [SEP], [PAD] and [MASK] itself.
    """

    size: int
    mask_token: int
    special_tokens: Sequence[int]


def mask_words(
    input_ids: Tensor, vocabulary: Vocabulary, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mask words as BERT does: 80 % become [MASK], 10 % any token, 10 % stay as they are.

    Args:
        input_ids: [N, T] token ids on the CPU, padding by the padding token.
        share: of the words to be predicted, each chosen by itself; 0.15 in BERT.

    Returns:
        [N, T] the token ids to read, and [N, T] bool, the places to predict.
    """
    special = torch.isin(input_ids, torch.tensor(list(vocabulary.special_tokens)))
    places = (torch.rand(input_ids.shape, generator=generator) < share) & ~special
    fate = torch.rand(input_ids.shape, generator=generator)
    random = torch.randint(vocabulary.size, input_ids.shape, generator=generator)
    hidden = torch.where(fate < _BECOMES_MASK, vocabulary.mask_token, input_ids)
    kept = fate >= _BECOMES_MASK + _BECOMES_RANDOM
    hidden = torch.where((fate >= _BECOMES_MASK) & ~kept, random, hidden)
    return torch.where(places, hidden, input_ids), places


def mask_blocks(block_mask: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Choose the sentence blocks to be predicted (SMITH, section 4.2.1).

    Args:
        block_mask: [D, S] on the CPU, 1 for a block and 0 for padding.
        count: of blocks in each document (m); 2 in the paper. A document of m blocks or fewer
            keeps one: what is all masked says nothing of itself.

    Returns:
        [D, S] bool.
    """
    return _rank(block_mask, generator) < (block_mask.sum(1, keepdim=True) - 1).clamp(max=count)


def choose_blocks(blocks: int, count: int, generator: torch.Generator) -> Tensor:
    """Choose the blocks of a document whose vectors a step computes from their tokens.

    Returns:
        [min(blocks, count)] places, ascending.
    """
    return torch.randperm(blocks, generator=generator)[:count].sort().values


def _rank(block_mask: Tensor, generator: torch.Generator) -> Tensor:
    """Return [D, S]: each block's place in a random order of its document; padding comes last."""
    order = torch.rand(block_mask.shape, generator=generator).masked_fill(block_mask == 0, 2.0)
    return order.argsort(1).argsort(1)


_FIRST_TEMPERATURE = 0.05
_LOWEST_TEMPERATURE = 0.01

M = TypeVar("M", bound=TrainableModel)


@dataclass(frozen=True, slots=True)
class VectorTask:
    """A loss of document vectors alone, which can be computed in chunks of the batch.

    Attributes:
        documents: the batch.
        loss: [D, dimension] document vectors -> [] loss.
    """

    documents: DocumentBatch
    loss: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class ModelTask(Generic[M]):
    """A loss that looks into the model; computed in one piece.

    Attributes:
        losses: model -> [] losses by name, whose sum is the loss.
    """

    losses: Callable[[M], Mapping[str, Tensor]]

    def loss(self, model: M) -> Tensor:
        """Return the loss of a model: []."""
        return torch.stack(list(self.losses(model).values())).sum()


@dataclass(frozen=True, slots=True)
class Objective(Generic[M]):
    """One term of the training loss.

    Attributes:
        name: its name in curves and messages; of its own in a run.
        weight: of its loss in the sum.
        sample: returns the task of a step; depends on the generator alone.
        head: what is trained for this objective only (`WordHead`, `BlockHead`, `Temperature`).
    """

    name: str
    weight: float
    sample: Callable[[torch.Generator], VectorTask | ModelTask[M]]
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


def masked_words_task(
    texts: BlockTexts,
    vocabulary: Vocabulary,
    share: float,
    head: WordHead,
    generator: torch.Generator,
) -> ModelTask[EncoderModel]:
    """Hide words in sentence blocks and predict them."""
    hidden, places = mask_words(texts.input_ids, vocabulary, share, generator)
    words = torch.where(places, texts.input_ids, -1)
    masked = replace(texts, input_ids=hidden)

    def losses(model: EncoderModel) -> dict[str, Tensor]:
        device = head.bias.device
        return {"words": word_loss(model, head, masked.to(device), words.to(device))}

    return ModelTask(losses)


def joint_task(
    documents: DocumentBatch,
    vocabulary: Vocabulary,
    shares: tuple[float, int],
    head: JointHead,
    generator: torch.Generator,
) -> ModelTask[EncoderModel]:
    """Hide words and sentence blocks of the same documents and predict both.

    Args:
        shares: the share of the words, and how many blocks of each document are hidden.
    """
    texts = texts_of(documents)
    share, count = shares
    hidden, places = mask_words(texts.input_ids, vocabulary, share, generator)
    words = torch.where(places, texts.input_ids, -1)
    masked = mask_blocks(documents.block_mask, count, generator)
    batch = replace(documents, texts=replace(texts, input_ids=hidden))

    def losses(model: EncoderModel) -> dict[str, Tensor]:
        device = head.words.bias.device
        return joint_losses(model, head, batch.to(device), words.to(device), masked.to(device))

    return ModelTask(losses)


def masked_blocks_task(
    documents: DocumentBatch, count: int, head: BlockHead, generator: torch.Generator
) -> ModelTask[EncoderModel]:
    """Hide `count` sentence blocks of each document and predict them."""
    masked = mask_blocks(documents.block_mask, count, generator)

    def losses(model: EncoderModel) -> dict[str, Tensor]:
        device = head.masked_block.device
        return {"blocks": block_loss(model, head, documents.to(device), masked.to(device))}

    return ModelTask(losses)

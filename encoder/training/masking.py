"""What is hidden from the model in a step: words, sentence blocks. Drawn anew in every step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
    """Hide words as BERT does: 80 % become [MASK], 10 % any token, 10 % stay as they are.

    Args:
        input_ids: [N, T] token ids on the CPU, padding by the padding token.
        vocabulary: which ids are special.
        share: of the words to be predicted, each chosen by itself; 0.15 in BERT.
        generator: of the choice.

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
        generator: of the choice.

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

"""Segment reordering: chunks of a document are permuted, and their order is to be predicted.

The ERNIE-Doc paper, section 3.4: a text is cut into 1 to m chunks, these are permuted, the whole is
cut into segments, and the right one of the K = 1! + ... + m! permutations of them is found
at the last segment, in the retrospective phase. Masked words are predicted at every segment.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.checkpoint import Checkpoint
from training.batch import BlockTexts, as_documents, pad_tokens
from training.losses import WordHead, word_loss
from training.models.architecture import EncoderConfig, EncoderModel, RecurrentModel
from training.objectives import ModelTask, Vocabulary, mask_words


class OrderHead(nn.Module):
    """What predicts the permutation from the last [CLS], and the masked words."""

    def __init__(self, config: EncoderConfig, chunks: int) -> None:
        super().__init__()
        self.words = WordHead(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, count_orders(chunks))

    def forward(self, states: Tensor) -> Tensor:
        """Score permutations: states [D, H] of the last [CLS] -> [D, K] logits."""
        logits: Tensor = self.classifier(torch.tanh(self.pooler(states)))
        return logits


def count_orders(chunks: int) -> int:
    """Return K, the number of permutations of 1 to `chunks` chunks."""
    return sum(math.factorial(count) for count in range(1, chunks + 1))


def class_of(order: Sequence[int]) -> int:
    """Return the class of a permutation: those of fewer chunks first, then in dictionary order.

    Args:
        order: the chunks as they were, from 0, in the places where they are now.
    """
    rank = 0
    for place, chunk in enumerate(order):
        smaller_after = sum(other < chunk for other in order[place + 1 :])
        rank += smaller_after * math.factorial(len(order) - 1 - place)
    return count_orders(len(order) - 1) + rank


def permute_chunks(
    tokens: Tensor, chunks: int, generator: torch.Generator
) -> tuple[Tensor, Sequence[int]]:
    """Cut tokens [n] at random into 1 to `chunks` chunks and permute them.

    Returns:
        [n] the permuted tokens, and the order of the chunks.
    """
    count = int(torch.randint(1, min(chunks, len(tokens)) + 1, (), generator=generator))
    cuts = torch.randperm(len(tokens) - 1, generator=generator)[: count - 1].sort().values + 1
    parts = [tokens[a:b] for a, b in pairwise([0, *cuts.tolist(), len(tokens)])]
    order = torch.randperm(count, generator=generator).tolist()
    return torch.cat([parts[chunk] for chunk in order]), order


def reorder(
    texts: BlockTexts, chunks: int, checkpoint: Checkpoint, generator: torch.Generator
) -> tuple[BlockTexts, Tensor]:
    """Permute chunks of each document, and cut it into full segments again.

    Args:
        texts: all blocks of D documents, on the CPU.
        chunks: of a document, at most (m).
        checkpoint: its special tokens and the length of a segment.

    Returns:
        The segments, and [D] classes of the permutations.
    """
    capacity = checkpoint.block_length - 2
    first, last = (torch.tensor([t]) for t in (checkpoint.start_token, checkpoint.end_token))
    segments: list[Tensor] = []
    documents: list[int] = []
    places: list[int] = []
    classes: list[int] = []
    for document in range(int(texts.documents.max()) + 1):
        own = texts.documents == document
        rows = zip(texts.input_ids[own], texts.attention_mask[own].sum(1).tolist(), strict=True)
        tokens = torch.cat([row[1 : length - 1] for row, length in rows])
        permuted, order = permute_chunks(tokens, chunks, generator)
        cut = torch.split(permuted, capacity)
        segments += [torch.cat([first, part, last]) for part in cut]
        documents += [document] * len(cut)
        places += range(len(cut))
        classes.append(class_of(order))
    padded = pad_tokens(segments, checkpoint.padding_token)
    texts = BlockTexts(torch.tensor(documents), torch.tensor(places), *padded)
    return texts, torch.tensor(classes)


def reorder_losses(
    model: RecurrentModel, head: OrderHead, texts: BlockTexts, words: Tensor, classes: Tensor
) -> dict[str, Tensor]:
    """Segment reordering and masked words (section 3.4).

    Args:
        texts: all segments of D documents with permuted chunks and hidden words, N of them.
        words: [N, T] the token ids to predict, -1 where there is nothing to predict.
        classes: [D] the permutations.

    Returns:
        [] cross-entropies: "order" of the permutation, mean over documents; "words", mean over the
        masked words, unless there is none.
    """
    ids, mask = as_documents(texts)  # [D, S, T]
    states = torch.stack(model.segment_states(ids, mask), dim=1)  # [D, S, T, H]
    last = mask.amax(-1).sum(1) - 1  # [D]
    cls = states[torch.arange(len(last), device=last.device), last, 0]  # [D, H]
    losses = {"order": F.cross_entropy(head(cls), classes)}
    if (words >= 0).any():
        of_texts = states[texts.documents, texts.places]  # [N, T, H]
        losses["words"] = word_loss(model, head.words, texts, words, of_texts)
    return losses


def reorder_task(
    texts: BlockTexts,
    checkpoint: Checkpoint,
    vocabulary: Vocabulary,
    parameters: tuple[int, float],
    head: OrderHead,
    generator: torch.Generator,
) -> ModelTask[EncoderModel]:
    """Permute chunks of documents, hide words, and predict both.

    Args:
        checkpoint: as in `reorder`.
        vocabulary: as in `mask_words`.
        parameters: the most chunks of a document, and the share of the words that are hidden.
    """
    chunks, share = parameters
    permuted, classes = reorder(texts, chunks, checkpoint, generator)
    hidden, places = mask_words(permuted.input_ids, vocabulary, share, generator)
    words = torch.where(places, permuted.input_ids, -1)
    masked = replace(permuted, input_ids=hidden)

    def losses(model: EncoderModel) -> dict[str, Tensor]:
        if not isinstance(model, RecurrentModel):
            raise TypeError("segments are reordered by a recurrent encoder only")
        device = head.classifier.weight.device
        return reorder_losses(model, head, masked.to(device), words.to(device), classes.to(device))

    return ModelTask(losses)

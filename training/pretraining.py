"""Pretraining: what is hidden of texts is predicted from the rest, without a label.

That is words and sentence blocks (SMITH, section 4.2), and the order of the parts of a document:
a text is cut into 1 to m chunks, these are permuted, the whole is cut into segments, and the right
one of the K = 1! + ... + m! permutations of them is found at the last segment, in the retrospective
phase (ERNIE-Doc, section 3.4).
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from itertools import pairwise, permutations
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.checkpoint import TOKENIZER, Checkpoint
from encoder.errors import CheckpointError
from encoder.tokenizer import open_tokenizer
from training.batch import (
    BlockTexts,
    DocumentBatch,
    block_vectors,
    pad_tokens,
    put_computed,
    texts_of,
    token_states,
)
from training.losses import masked_block_prediction, masked_word_prediction
from training.models.architecture import EncoderConfig, EncoderModel
from training.models.layers import BlockEncoder
from training.models.smith import DocumentEncoder
from training.objectives import Task

_BECOMES_MASK = 0.8
_BECOMES_RANDOM = 0.1


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The number of token ids, and the ids of special tokens."""

    size: int
    start_token: int
    end_token: int
    padding_token: int
    mask_token: int


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Read the token ids that pretraining has to know."""
    mask = open_tokenizer(checkpoint).token_to_id("[MASK]")
    if mask is None:
        raise CheckpointError(f"{checkpoint.directory / TOKENIZER} has no [MASK]")
    size = int(checkpoint.model["vocabulary_size"])
    first, last, padding = checkpoint.start_token, checkpoint.end_token, checkpoint.padding_token
    return Vocabulary(size, first, last, padding, mask)


def mask_words(
    input_ids: Tensor, vocabulary: Vocabulary, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mask words as BERT does: 80 % become [MASK], 10 % any token, 10 % stay as they are.

    Special tokens are never masked.

    Args:
        input_ids: [N, T] token ids on the CPU, padding by the padding token.
        share: of the words to be predicted, each chosen by itself; 0.15 in BERT.

    Returns:
        [N, T] the token ids to read, and [N, T] bool, the places to predict.
    """
    size, *special_tokens = astuple(vocabulary)
    special = torch.isin(input_ids, torch.tensor(special_tokens))
    places = (torch.rand(input_ids.shape, generator=generator) < share) & ~special
    fate = torch.rand(input_ids.shape, generator=generator)
    random = torch.randint(size, input_ids.shape, generator=generator)
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


def _rank(block_mask: Tensor, generator: torch.Generator) -> Tensor:
    """Return [D, S]: each block's place in a random order of its document; padding comes last."""
    order = torch.rand(block_mask.shape, generator=generator).masked_fill(block_mask == 0, 2.0)
    return order.argsort(1).argsort(1)


class WordHead(nn.Module):
    """The transformation of a masked token before BERT's (tied) output embedding."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))

    def forward(self, states: Tensor) -> Tensor:
        """Transform states [N, H] -> [N, H]."""
        result: Tensor = self.norm(F.gelu(self.transform(states)))
        return result


class PretrainingHead(nn.Module):
    """What is trained for an objective of pretraining alone: a part for all that is hidden.

    Args:
        share: of the words, that are hidden.
        masked_blocks: sentence blocks of a document that are hidden.
        chunks: into which a document is cut, at most, to be permuted.

    Attributes:
        words: before the output embedding, where words are hidden.
        masked_block: [H] what replaces a hidden sentence block (section 4.2.1).
        order: the last [CLS] of documents [D, H] -> [D, K] logits of the permutations.
    """

    words: WordHead
    masked_block: nn.Parameter
    order: nn.Sequential

    def __init__(
        self,
        config: EncoderConfig,
        vocabulary: Vocabulary,
        *,
        share: float = 0.0,
        masked_blocks: int = 0,
        chunks: int = 0,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.segment_length, width = config.block_length, config.hidden_size
        self.share, self.masked_blocks, self.chunks = share, masked_blocks, chunks
        if share:
            self.words = WordHead(config)
        if masked_blocks:  # a unit vector, as those around it are: it must not dominate them
            self.masked_block = nn.Parameter(F.normalize(torch.randn(width), dim=0))
        if chunks:
            classes = len(orders_of(chunks))
            self.order = nn.Sequential(
                nn.Linear(width, width), nn.Tanh(), nn.Linear(width, classes)
            )


def orders_of(chunks: int) -> list[tuple[int, ...]]:
    """Return the permutations of 1 to `chunks` chunks; the class of each is its place.

    A permutation holds the chunks as they were, from 0, in the places where they are now.
    """
    return [order for count in range(1, chunks + 1) for order in permutations(range(count))]


def permute_chunks(
    tokens: Tensor, chunks: int, generator: torch.Generator
) -> tuple[Tensor, tuple[int, ...]]:
    """Cut tokens [n] at random into 1 to `chunks` chunks and permute them.

    Returns:
        [n] the permuted tokens, and the order of the chunks.
    """
    count = int(torch.randint(1, min(chunks, len(tokens)) + 1, (), generator=generator))
    cuts = torch.randperm(len(tokens) - 1, generator=generator)[: count - 1].sort().values + 1
    parts = [tokens[a:b] for a, b in pairwise([0, *cuts.tolist(), len(tokens)])]
    order = tuple(torch.randperm(count, generator=generator).tolist())
    return torch.cat([parts[chunk] for chunk in order]), order


def reorder(
    texts: BlockTexts, head: PretrainingHead, generator: torch.Generator
) -> tuple[BlockTexts, Tensor]:
    """Permute chunks of each document, and cut it into full segments again.

    Args:
        texts: all blocks of D documents, on the CPU.
        head: that is to predict the order.

    Returns:
        The segments, and [D] classes of the permutations.
    """
    vocabulary, orders = head.vocabulary, orders_of(head.chunks)
    first, last = (torch.tensor([t]) for t in (vocabulary.start_token, vocabulary.end_token))
    segments: list[Tensor] = []
    documents: list[int] = []
    places: list[int] = []
    classes: list[int] = []
    for document in range(int(texts.documents.max()) + 1):
        own = texts.documents == document
        rows = zip(texts.input_ids[own], texts.attention_mask[own].sum(1).tolist(), strict=True)
        tokens = torch.cat([row[1 : length - 1] for row, length in rows])
        permuted, order = permute_chunks(tokens, head.chunks, generator)
        cut = torch.split(permuted, head.segment_length - 2)
        segments += [torch.cat([first, part, last]) for part in cut]
        documents += [document] * len(cut)
        places += range(len(cut))
        classes.append(orders.index(order))
    padded = pad_tokens(segments, vocabulary.padding_token)
    texts = BlockTexts(torch.tensor(documents), torch.tensor(places), *padded)
    return texts, torch.tensor(classes)


def pretraining_task(
    documents: DocumentBatch, head: PretrainingHead, generator: torch.Generator
) -> Task[EncoderModel]:
    """Hide of documents what a head predicts.

    Args:
        documents: on the CPU; with the tokens of blocks, unless blocks alone are hidden, and of all
            blocks where chunks are permuted.
        generator: of masks and permutations.
    """
    hidden: dict[str, Tensor] = {}
    if head.chunks:
        texts, hidden["order"] = reorder(texts_of(documents), head, generator)
        documents = replace(documents, texts=texts)
    if head.share:
        texts = texts_of(documents)
        ids, places = mask_words(texts.input_ids, head.vocabulary, head.share, generator)
        hidden["words"] = torch.where(places, texts.input_ids, -1)
        documents = replace(documents, texts=replace(texts, input_ids=ids))
    if head.masked_blocks:
        hidden["blocks"] = mask_blocks(documents.block_mask, head.masked_blocks, generator)

    def losses(model: EncoderModel) -> Mapping[str, Tensor]:
        device = model.device
        there = {name: tensor.to(device) for name, tensor in hidden.items()}
        return pretraining_losses(model, head, documents.to(device), there)

    return losses


def pretraining_losses(
    model: EncoderModel, head: PretrainingHead, batch: DocumentBatch, hidden: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Return how well a model finds what is hidden of a batch.

    Args:
        batch: documents without what is hidden.
        hidden: some of "words" [N, T], the token ids to predict and -1 where there is nothing to
            predict; "blocks" [D, S] bool, the blocks to predict; "order" [D], the classes of the
            permutations.

    Returns:
        [] losses by these names, each a mean; of words and blocks 0 where none is hidden. The
        papers train their sum (SMITH, equation 7).
    """
    losses: dict[str, Tensor] = {}
    vectors = None
    if hidden.keys() & {"words", "order"}:
        texts = texts_of(batch)
        states = token_states(model, texts)  # [N, T, H]
        if "words" in hidden:
            chosen, table = hidden["words"] >= 0, model.block_encoder.token_embedding.weight
            losses["words"] = masked_word_prediction(
                head.words(states[chosen]), table, head.words.bias, hidden["words"][chosen]
            )
        if "order" in hidden:
            last = texts.documents.bincount().cumsum(0) - 1  # [D] rows of the last segments
            losses["order"] = F.cross_entropy(head.order(states[last, 0]), hidden["order"])
        if "blocks" in hidden:  # whose texts are not read again
            level = cast(BlockEncoder, model.block_encoder)
            vectors = put_computed(batch, level.pool(states, texts.attention_mask))
    if "blocks" in hidden:
        masked, document_level = hidden["blocks"], cast(DocumentEncoder, model.document_encoder)
        vectors = block_vectors(model, batch) if vectors is None else vectors  # [D, S, H]
        replaced = head.masked_block.to(vectors.dtype)
        read = torch.where(masked[:, :, None], replaced, vectors)
        found = document_level.block_states(read, batch.block_mask)
        losses["blocks"] = masked_block_prediction(found[masked], vectors[masked].to(found.dtype))
    return losses

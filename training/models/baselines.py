"""Encoders that the papers compare with: HAN, SMASH, DSSM and ARC-I.

HAN (Yang et al., "Hierarchical attention networks for document classification", NAACL 2016,
section 2.2) reads words with a bidirectional GRU and attention into a sentence vector, and sentence
vectors likewise into a document vector. SMASH (Jiang et al., "Semantic text matching for long-form
documents", WWW 2019, section 3) adds paragraphs and concatenates the document vectors of several
depths. Differences from the papers: a sentence is a sentence block of WordPieces, and its vector
has unit norm; a paragraph is a fixed number of blocks; SMASH's shallowest document vector, of words
alone without sentences, is left out, because a GRU would read a whole document word by word.

DSSM (Huang et al., "Learning deep structured semantic models for web search using clickthrough
data", CIKM 2013, section 3): three fully connected layers over a bag of words. Differences: words
are hashed to WordPieces instead of letter trigrams; a block vector is the mean embedding of its
tokens, of unit norm, so that the bag of a document is the mean over its blocks, whatever their
length.

ARC-I (Hu et al., "Convolutional neural network architectures for matching natural language
sentences", NIPS 2014, sections 2 and 3.1): convolutions and max pooling over the words, with three
layers and a cosine as in the CoLDE paper (4.1.3). Differences: convolutions do not cross the end of
a sentence block, whose vector has unit norm; pairs of places are pooled from every place on, not
from every other one, and the next layer is dilated instead; a document is the maximum over its
blocks; two documents meet in the cosine of their vectors, not in a perceptron, so that a document
can be stored as one vector.
"""

from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.architecture import STRICT, EncoderConfig, EncoderModel
from training.models.layers import (
    MASK_VALUE,
    Bidirectional,
    TokenEncoder,
    masked_mean,
)
from training.models.weights import BertWeights


@dataclass(frozen=True, slots=True, config=STRICT)
class BaselineConfig(EncoderConfig):
    """Sizes of a baseline, whose token embedding is as wide as a block vector."""

    block_length: PositiveInt = 64
    hidden_size: PositiveInt = 256
    dimension: PositiveInt = 256


class Baseline(EncoderModel):
    """One tower of the Siamese pair: both levels, end to end."""

    def load_bert(self, folder: Path) -> None:
        """Copy the token embedding of a BERT checkpoint, all that a baseline has of it."""
        bert, embedding = BertWeights(folder), self.block_encoder.token_embedding
        bert.copy_into(embedding, {"weight": bert["embeddings.word_embeddings.weight"]})


@dataclass(frozen=True, slots=True, config=STRICT)
class HanConfig(BaselineConfig):
    """Sizes of HAN, and of SMASH.

    Attributes:
        paragraph_blocks: sentence blocks of a paragraph; 0 for HAN, which has no paragraphs.
    """

    hidden_size: Annotated[int, Field(gt=0, multiple_of=2)] = 256  # half of it a direction
    paragraph_blocks: NonNegativeInt = 0


class AttentiveGru(nn.Module):
    """One level: a bidirectional GRU, and attention with a learned context vector (HAN, 2.2)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gru = Bidirectional(nn.GRU, size, size)
        self.hidden = nn.Linear(size, size)  # eq. 5
        self.context = nn.Linear(size, 1, bias=False)  # u, eq. 6

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Read states [N, T, H], padding last under mask [N, T] -> [N, H]."""
        read = self.gru(states, mask)
        logits = self.context(torch.tanh(self.hidden(read)))  # [N, T, 1]
        bias = (1.0 - mask[:, :, None].to(logits.dtype)) * MASK_VALUE
        result: Tensor = (read * torch.softmax(logits + bias, dim=1)).sum(1)  # eq. 7
        return result


class WordLevel(TokenEncoder):
    """Tokens of a sentence block -> its block vector."""

    def __init__(self, config: HanConfig) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList([AttentiveGru(config.hidden_size)])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode sentence blocks: [N, T], [N, T] -> [N, H] of unit norm."""
        states = self.dropout(self.token_embedding(input_ids))
        return F.normalize(self.layers[0](states, attention_mask), dim=-1)


class DocumentLevel(nn.Module):
    """Block vectors -> the document vector, by sentences, and with SMASH also by paragraphs."""

    def __init__(self, config: HanConfig) -> None:
        super().__init__()
        self.config = config
        self.sentences = AttentiveGru(config.hidden_size)
        features = config.hidden_size
        if config.paragraph_blocks:
            self.of_paragraph = AttentiveGru(config.hidden_size)
            self.paragraphs = AttentiveGru(config.hidden_size)
            features *= 2
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(features, config.dimension)

    def forward(self, block_vectors: Tensor, block_mask: Tensor, _: None = None) -> Tensor:
        """Encode documents: [D, S, H], [D, S], padding last -> [D, dimension] of unit norm."""
        parts = [self.sentences(block_vectors, block_mask)]
        if self.config.paragraph_blocks:
            parts.append(self._by_paragraphs(block_vectors, block_mask))
        projected = self.projection(self.dropout(torch.cat(parts, dim=-1)))
        return F.normalize(projected, dim=-1)

    def _by_paragraphs(self, vectors: Tensor, mask: Tensor) -> Tensor:
        size = self.config.paragraph_blocks
        documents, blocks, width = vectors.shape
        count = (blocks + size - 1) // size
        padding = count * size - blocks
        vectors = F.pad(vectors, (0, 0, 0, padding)).reshape(documents * count, size, width)
        mask = F.pad(mask, (0, padding)).reshape(documents * count, size)
        read = self.of_paragraph(vectors, mask).reshape(documents, count, width)
        result: Tensor = self.paragraphs(read, mask.amax(1).reshape(documents, count))
        return result


class Han(Baseline):
    """HAN, and SMASH by its configuration."""

    name = "han"
    configuration = HanConfig
    block_level = WordLevel
    document_level = DocumentLevel


@dataclass(frozen=True, slots=True, config=STRICT)
class DssmConfig(BaselineConfig):
    """Sizes of DSSM: the paper's layers are 300, 300 and 128 wide.

    Attributes:
        hidden_size: width of the first layer, which is the token embedding (H).
        middle_size: width of the second layer.
        dimension: width of the third.
    """

    hidden_size: PositiveInt = 300
    middle_size: PositiveInt = 300
    dimension: PositiveInt = 128


class BagOfWords(TokenEncoder):
    """Tokens of a sentence block -> its block vector: the first layer without its bias."""

    def __init__(self, config: DssmConfig) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.layers = nn.ModuleList()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode sentence blocks: [N, T], [N, T] -> [N, H] of unit norm."""
        return F.normalize(masked_mean(self.token_embedding(input_ids), attention_mask), dim=-1)


class FullyConnected(nn.Module):
    """Block vectors -> the document vector (equation 3)."""

    def __init__(self, config: DssmConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.first_bias = nn.Parameter(torch.zeros(config.hidden_size))
        self.second = nn.Linear(config.hidden_size, config.middle_size)
        self.projection = nn.Linear(config.middle_size, config.dimension)

    def forward(self, block_vectors: Tensor, block_mask: Tensor, _: None = None) -> Tensor:
        """Encode documents: [D, S, H], [D, S] -> [D, dimension] of unit norm."""
        first = torch.tanh(masked_mean(block_vectors, block_mask) + self.first_bias)
        second = torch.tanh(self.second(self.dropout(first)))
        return F.normalize(torch.tanh(self.projection(self.dropout(second))), dim=-1)


class Dssm(Baseline):
    """DSSM: a bag of words."""

    name = "dssm"
    configuration = DssmConfig
    block_level = BagOfWords
    document_level = FullyConnected


WINDOW = 3  # words that a convolution sees (k1)
STEPS = (1, 2, 4)  # of the places that each layer reads and pools


class Convolutions(TokenEncoder):
    """Tokens of a sentence block -> its block vector."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        size = config.hidden_size
        self.layers = nn.ModuleList(
            nn.Conv1d(size, size, WINDOW, padding=step * (WINDOW // 2), dilation=step)
            for step in STEPS
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode sentence blocks: [N, T], [N, T] -> [N, H] of unit norm."""
        states = self.dropout(self.token_embedding(input_ids)).transpose(1, 2)  # [N, H, T]
        mask = attention_mask[:, None].to(states.dtype)  # [N, 1, T]
        for step, layer in zip(STEPS, self.layers, strict=True):
            states = F.relu(layer(states * mask)) * mask  # eq. 1; the mask is the gate of padding
            followed = F.pad(states, (0, step))
            states = torch.maximum(followed[:, :, :-step], followed[:, :, step:])  # eq. 3
        return F.normalize(states.amax(2), dim=-1)


class Maximum(nn.Module):
    """Block vectors -> the document vector."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden_size, config.dimension)

    def forward(self, block_vectors: Tensor, block_mask: Tensor, _: None = None) -> Tensor:
        """Encode documents: [D, S, H], [D, S] -> [D, dimension] of unit norm."""
        padding = (1.0 - block_mask[:, :, None].to(block_vectors.dtype)) * MASK_VALUE
        highest = (block_vectors * block_mask[:, :, None] + padding).amax(1)
        return F.normalize(self.projection(self.dropout(highest)), dim=-1)


class ArcI(Baseline):
    """ARC-I: convolutions."""

    name = "arc-i"
    configuration = BaselineConfig
    block_level = Convolutions
    document_level = Maximum

"""HAN and SMASH: hierarchical attention networks over words, sentences and paragraphs.

HAN (Yang et al., "Hierarchical attention networks for document classification", NAACL 2016,
section 2.2) reads words with a bidirectional GRU and attention into a sentence vector, and sentence
vectors likewise into a document vector. SMASH (Jiang et al., "Semantic text matching for long-form
documents", WWW 2019, section 3) adds paragraphs and puts the document vectors of several depths
side by side.

Differences from the papers: a sentence is a sentence block of WordPieces, and its vector has unit
norm; a paragraph is a fixed number of blocks; SMASH's shallowest document vector, of words alone
without sentences, is left out, because a GRU would read a whole document word by word.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.models.architecture import EncoderArchitecture
from encoder.models.baselines.config import BaselineConfig
from encoder.models.baselines.parts import Baseline, begin_as_mean, load_embedding
from encoder.models.bidirectional import Bidirectional, check_output_size
from encoder.models.layers import MASK_VALUE, TokenEncoder, initialise_as_bert


@dataclass(frozen=True, slots=True)
class HanConfig(BaselineConfig):
    """Sizes of HAN, and of SMASH.

    Attributes:
        paragraph_blocks: sentence blocks of a paragraph; 0 for HAN, which has no paragraphs.
    """

    paragraph_blocks: int = 0

    def __post_init__(self) -> None:
        check_output_size("hidden_size", self.hidden_size)
        if self.paragraph_blocks < 0:
            raise ValueError(f"paragraph_blocks must not be negative: {self.paragraph_blocks}")


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
        """Encode documents.

        Args:
            block_vectors: [D, S, H], any values in padding.
            block_mask: [D, S], 1 for a block and 0 for padding, which comes last.

        Returns:
            [D, dimension] document vectors of unit norm.
        """
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
    """One tower of the Siamese pair."""

    config: HanConfig

    def __init__(self, config: HanConfig) -> None:
        super().__init__()
        self.config = config
        self.block_encoder = WordLevel(config)
        self.document_encoder = DocumentLevel(config)
        self.apply(initialise_as_bert)


def _load_bert(model: Han, folder: Path) -> None:
    load_embedding(model.block_encoder, folder)


ARCHITECTURE = EncoderArchitecture(
    name="han",
    config=HanConfig,
    model=Han,
    load_bert=_load_bert,
    begin_as_mean=begin_as_mean,
)

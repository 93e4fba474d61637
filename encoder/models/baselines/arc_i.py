"""ARC-I: convolutions and max pooling over the words of a document.

Hu et al., "Convolutional neural network architectures for matching natural language sentences",
NIPS 2014, sections 2 and 3.1, with three layers and a cosine as in the CoLDE paper (4.1.3).
Differences from the paper: convolutions do not cross the end of a sentence block, whose vector has
unit norm; pairs of places are pooled from every place on, not from every other one, and the next
layer is dilated instead; a document is the maximum over its blocks; two documents meet in the
cosine of their vectors, not in a perceptron, so that a document can be stored as one vector.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.models.architecture import EncoderArchitecture
from encoder.models.baselines.config import BaselineConfig
from encoder.models.baselines.parts import Baseline, begin_as_mean, load_embedding
from encoder.models.layers import MASK_VALUE, TokenEncoder, initialise_as_bert

WINDOW = 3  # words that a convolution sees (k1)
STEPS = (1, 2, 4)  # of the places that each layer reads and pools


@dataclass(frozen=True, slots=True)
class ArcIConfig(BaselineConfig):
    """Sizes of ARC-I."""


class Convolutions(TokenEncoder):
    """Tokens of a sentence block -> its block vector."""

    def __init__(self, config: ArcIConfig) -> None:
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

    def __init__(self, config: ArcIConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden_size, config.dimension)

    def forward(self, block_vectors: Tensor, block_mask: Tensor, _: None = None) -> Tensor:
        """Encode documents: [D, S, H], [D, S] -> [D, dimension] of unit norm."""
        padding = (1.0 - block_mask[:, :, None].to(block_vectors.dtype)) * MASK_VALUE
        highest = (block_vectors * block_mask[:, :, None] + padding).amax(1)
        return F.normalize(self.projection(self.dropout(highest)), dim=-1)


class ArcI(Baseline):
    """One tower of the Siamese pair."""

    config: ArcIConfig

    def __init__(self, config: ArcIConfig) -> None:
        super().__init__()
        self.config = config
        self.block_encoder = Convolutions(config)
        self.document_encoder = Maximum(config)
        self.apply(initialise_as_bert)


def _load_bert(model: ArcI, folder: Path) -> None:
    load_embedding(model.block_encoder, folder)


ARCHITECTURE = EncoderArchitecture(
    name="arc-i",
    config=ArcIConfig,
    model=ArcI,
    load_bert=_load_bert,
    begin_as_mean=begin_as_mean,
)

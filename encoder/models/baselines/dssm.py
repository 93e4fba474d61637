"""DSSM: three fully connected layers over a bag of words.

Huang et al., "Learning deep structured semantic models for web search using clickthrough data",
CIKM 2013, section 3. Differences from the paper: words are hashed to WordPieces instead of letter
trigrams; a block vector is the mean embedding of its tokens, of unit norm, so that the bag of a
document is the mean over its blocks, whatever their length.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.models.architecture import EncoderArchitecture
from encoder.models.baselines.config import BaselineConfig
from encoder.models.baselines.parts import Baseline, begin_as_mean, load_embedding
from encoder.models.layers import TokenEncoder, initialise_as_bert, masked_mean


@dataclass(frozen=True, slots=True)
class DssmConfig(BaselineConfig):
    """Sizes of DSSM: the paper's layers are 300, 300 and 128 wide.

    Attributes:
        hidden_size: width of the first layer, which is the token embedding (H).
        middle_size: width of the second layer.
        dimension: width of the third.
    """

    hidden_size: int = 300
    middle_size: int = 300
    dimension: int = 128


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
    """One tower of the Siamese pair."""

    config: DssmConfig

    def __init__(self, config: DssmConfig) -> None:
        super().__init__()
        self.config = config
        self.block_encoder = BagOfWords(config)
        self.document_encoder = FullyConnected(config)
        self.apply(initialise_as_bert)


def _load_bert(model: Dssm, folder: Path) -> None:
    load_embedding(model.block_encoder, folder)


ARCHITECTURE = EncoderArchitecture(
    name="dssm",
    config=DssmConfig,
    model=Dssm,
    load_bert=_load_bert,
    begin_as_mean=begin_as_mean,
)

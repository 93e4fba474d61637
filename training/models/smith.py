"""SMITH: Siamese multi-depth Transformer-based hierarchical encoder (the SMITH paper, section 4.1).

A sentence level reads each sentence block by itself, a document level reads the block vectors.
Each half is a module because each is exported to a separate graph.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.architecture import STRICT, EncoderConfig, EncoderModel
from training.models.layers import (
    MASK_VALUE,
    BlockEncoder,
    Pooling,
    attention_bias,
    masked_mean,
    project_first,
    transformer,
)
from training.recipe import TermRecipe

Combine = Literal["normal", "sum_concat", "mean_concat", "attention"]


@dataclass(frozen=True, slots=True, config=STRICT)
class SmithConfig(EncoderConfig):
    """Sizes and choices of one SMITH encoder. The defaults are the paper's (section 5.4).

    Attributes:
        block_length: tokens of a sentence block, special tokens included (L_s).
        hidden_size: width of both levels and of a block vector (H).
        max_blocks: sentence blocks that the document level has positions for (L_d).
        attention_heads: heads of both levels (A).
        sentence_layers: layers of the sentence level (L1).
        pooled_layers: how many of these, the last ones, read averages of neighbouring tokens
            instead of tokens, which costs a fraction; 0 in the paper.
        pooled_tokens: tokens of an average; 1 without such layers.
        document_layers: layers of the document level (L2).
        term_features: width of what the term table gives (`encoder/terms/term_table.py`); 0 for a
            model without a term channel.
        term_dimension: how much of `dimension` the term channel has.
        term_buckets: rows of the term table that words of several WordPieces share.
        sketch_dimension: how much of `dimension` hashed terms
            (`encoder/terms/term_channel.py`) have, which are not learned; 0 for a model without
            them. Named so in the configuration of shipped checkpoints.
        pooling: a block is represented by its first token ("cls", the paper) or by the mean of
            its tokens ("mean", what most sentence encoders were trained with).
        combine: how the two levels are combined (section 4.1.4).
        attention_size: width of the attention of `combine="attention"` (V).
    """

    block_length: PositiveInt = 32
    hidden_size: PositiveInt = 256
    intermediate_size: PositiveInt = 1_024
    attention_heads: PositiveInt = 4
    sentence_layers: PositiveInt = 6
    pooled_layers: NonNegativeInt = 0
    pooled_tokens: PositiveInt = 1
    document_layers: NonNegativeInt = 3
    dimension: PositiveInt = 256
    term_features: NonNegativeInt = 0
    term_dimension: NonNegativeInt = 0
    term_buckets: NonNegativeInt = 0
    sketch_dimension: NonNegativeInt = 0
    pooling: Pooling = "cls"
    combine: Combine = "normal"
    attention_size: PositiveInt = 128

    predicts_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.pooled_layers > self.sentence_layers:
            raise ValueError(
                f"pooled_layers must be from 0 to the {self.sentence_layers} sentence_layers, not "
                f"{self.pooled_layers}"
            )
        if (self.pooled_tokens > 1) != (self.pooled_layers > 0):
            raise ValueError(
                f"pooled_tokens must be above 1 with pooled_layers, and 1 without, not "
                f"{self.pooled_tokens}"
            )
        if self.pooled_layers and self.pooling != "mean":
            raise ValueError(f'pooled_layers take pooling = "mean", not {self.pooling!r}')
        if (self.term_features == 0) != (self.term_dimension == 0):
            raise ValueError("term_features and term_dimension are both 0, or neither")
        if self.sketch_dimension and not self.term_dimension:
            raise ValueError("sketch_dimension takes a term channel: term_dimension is 0")
        if self.block_part < 1:
            raise ValueError(
                f"term_dimension and sketch_dimension must be under dimension together, not "
                f"{self.term_dimension} and {self.sketch_dimension}"
            )

    @property
    def term_width(self) -> int:
        """Width of the term features: those of the term table, then hashed ones."""
        return self.term_features + self.sketch_dimension

    @property
    def block_part(self) -> int:
        """Width of the part of the document vector that is computed from block vectors."""
        return self.dimension - self.term_dimension - self.sketch_dimension


class DocumentEncoder(nn.Module):
    """The document level: block vectors -> the document vector (sections 4.1.2 and 4.1.4).

    With a term channel, which the paper has not, the document vector is of two parts side by
    side, or three with hashed terms, each of unit norm before factors balance them.
    """

    sketch_balance: Tensor

    def __init__(self, config: SmithConfig) -> None:
        super().__init__()
        self.config = config
        self.position_embedding = nn.Embedding(config.max_blocks, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = transformer(config, config.document_layers)
        if config.combine == "attention":
            self.attention_projection = nn.Linear(
                config.hidden_size, config.attention_size, bias=False
            )
            self.attention_vector = nn.Linear(config.attention_size, 1, bias=False)
        features = config.hidden_size * (1 if config.combine == "normal" else 2)
        self.projection = nn.Linear(features, config.block_part)
        if config.term_features:
            self.term_projection = nn.Linear(config.term_features, config.term_dimension)
            self.balance = nn.Parameter(torch.zeros(()))  # logarithm of the factor of the blocks
        if config.sketch_dimension:
            # That of the hashed terms, which is set: training would trust only words that it knows.
            self.register_buffer("sketch_balance", torch.zeros(()))

    def block_states(self, block_vectors: Tensor, block_mask: Tensor) -> Tensor:
        """Return the contextual block representations S_i: [D, S, H], [D, S] -> [D, S, H]."""
        positions = torch.arange(block_vectors.shape[1], device=block_vectors.device)
        embedded = block_vectors + self.position_embedding(positions)
        states: Tensor = self.dropout(self.embedding_norm(embedded))  # [D, S, H]
        bias = attention_bias(block_mask, states.dtype)
        for layer in self.layers:
            states = layer(states, bias)
        return states

    def forward(
        self, block_vectors: Tensor, block_mask: Tensor, term_features: Tensor | None = None
    ) -> Tensor:
        """Encode documents: [D, S, H], [D, S] -> [D, dimension] of unit norm.

        With a term channel, `term_features` [D, term_width] are those of the term table and of
        hashed terms. Padding may have any values; every document has a block.
        """
        blocks = F.normalize(self._project_blocks(block_vectors, block_mask), dim=-1)
        if term_features is None:
            return blocks
        known, hashed = self._split(term_features)
        terms = F.normalize(self.term_projection(self.dropout(known)), dim=-1)
        parts = [terms, self.balance.exp() * blocks]
        if self.config.sketch_dimension:
            parts.append(self.sketch_balance.exp() * F.normalize(hashed, dim=-1))
        return F.normalize(torch.cat(parts, dim=-1), dim=-1)

    def _split(self, term_features: Tensor) -> tuple[Tensor, Tensor]:
        width = self.term_projection.in_features
        return term_features[:, :width], term_features[:, width:]

    def _project_blocks(self, block_vectors: Tensor, block_mask: Tensor) -> Tensor:
        read = slice(None if len(self.layers) else 1)  # without a layer, blocks do not meet
        document = self.block_states(block_vectors[:, read], block_mask[:, read])[:, 0]  # [D, H]
        features = document
        if self.config.combine != "normal":
            blocks = self._combine_blocks(block_vectors, block_mask)  # [D, H]
            features = torch.cat([blocks, document], dim=-1)  # [D, 2H]
        projected: Tensor = self.projection(self.dropout(features))
        return projected

    def _combine_blocks(self, block_vectors: Tensor, block_mask: Tensor) -> Tensor:
        if self.config.combine == "sum_concat":
            return (block_vectors * block_mask[:, :, None].to(block_vectors.dtype)).sum(1)
        if self.config.combine == "mean_concat":
            return masked_mean(block_vectors, block_mask)
        logits = self.attention_vector(self.attention_projection(block_vectors))  # [D, S, 1]
        bias = (1.0 - block_mask[:, :, None].to(logits.dtype)) * MASK_VALUE
        return (block_vectors * torch.softmax(logits + bias, dim=1)).sum(1)


class Smith(EncoderModel):
    """One tower of the Siamese pair: both levels, end to end."""

    name = "smith"
    configuration = SmithConfig
    block_level = BlockEncoder
    document_level = DocumentEncoder
    config: SmithConfig
    block_encoder: BlockEncoder
    document_encoder: DocumentEncoder

    def begin_as_mean(self) -> None:
        """Begin as the mean; see `EncoderModel`.

        The Transformer of the document level keeps its random weights, with zero weight in the
        projection.
        """
        if self.config.combine not in ("mean_concat", "attention"):
            raise ValueError(
                f"combine={self.config.combine!r} cannot begin as the mean of the blocks"
            )
        if self.config.block_part != self.config.hidden_size:
            raise ValueError("beginning as the mean takes hidden_size dimensions for the blocks")
        project_first(self.document_encoder.projection)
        if self.config.combine == "attention":  # equal logits: the mean
            nn.init.zeros_(self.document_encoder.attention_vector.weight)

    @classmethod
    def with_term_channel(
        cls, config: SmithConfig, terms: TermRecipe, features: int
    ) -> SmithConfig:
        """Give a configuration a term channel and the same block part; see `EncoderModel`."""
        return replace(
            config,
            dimension=config.block_part + terms.dimension + terms.hashed_dimension,
            term_features=features,
            term_dimension=terms.dimension,
            term_buckets=terms.buckets,
            sketch_dimension=terms.hashed_dimension,
        )

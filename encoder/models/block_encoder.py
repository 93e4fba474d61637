"""The sentence level that the architectures share: a BERT-like encoder of one sentence block."""

from typing import Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.models.layers import TransformerLayer, attention_bias, masked_mean

Pooling = Literal["cls", "mean"]


class BlockEncoderConfig(Protocol):
    """What a configuration says of its sentence level; `SmithConfig` says what each field is."""

    @property
    def vocabulary_size(self) -> int: ...  # noqa: D102
    @property
    def block_length(self) -> int: ...  # noqa: D102
    @property
    def hidden_size(self) -> int: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def attention_heads(self) -> int: ...  # noqa: D102
    @property
    def sentence_layers(self) -> int: ...  # noqa: D102
    @property
    def pooling(self) -> Pooling: ...  # noqa: D102
    @property
    def dropout(self) -> float: ...  # noqa: D102
    @property
    def layer_norm_epsilon(self) -> float: ...  # noqa: D102


def check_pooling(pooling: str) -> None:
    """Refuse a pooling that there is not.

    Raises:
        ValueError: names it.
    """
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling must be 'cls' or 'mean', not {pooling!r}")


class BlockEncoder(nn.Module):
    """The sentence level: tokens of a sentence block -> its block vector (section 4.1.2)."""

    def __init__(self, config: BlockEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.block_length, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = transformer(config, config.sentence_layers)
        self.projection = nn.Linear(config.hidden_size, config.hidden_size)

    def token_states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the contextual token representations T_j: [N, T], [N, T] -> [N, T, H]."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        embedded = self.token_embedding(input_ids) + self.position_embedding(positions)  # eq. 1
        states: Tensor = self.dropout(self.embedding_norm(embedded))  # [N, T, H]
        bias = attention_bias(attention_mask, states.dtype)
        for layer in self.layers:
            states = layer(states, bias)
        return states

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode sentence blocks.

        Args:
            input_ids: [N, T] token ids, special tokens included.
            attention_mask: [N, T], 1 for a token and 0 for padding.

        Returns:
            [N, H] block vectors of unit norm.
        """
        states = self.token_states(input_ids, attention_mask)
        pooled = (
            states[:, 0] if self.config.pooling == "cls" else masked_mean(states, attention_mask)
        )  # [N, H]
        return F.normalize(self.projection(pooled), dim=-1)


def transformer(config: BlockEncoderConfig, layers: int) -> nn.ModuleList:
    """Make Transformer layers of the sizes of a configuration."""
    return nn.ModuleList(
        TransformerLayer(
            config.hidden_size,
            config.attention_heads,
            config.intermediate_size,
            config.dropout,
            config.layer_norm_epsilon,
        )
        for _ in range(layers)
    )

"""The Transformer layer and the reductions that more than one architecture uses."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from training.models.colde import ColdeConfig
    from training.models.smith import SmithConfig

MASK_VALUE = -1e4  # low enough that softmax gives 0, and still finite in fp16


class SelfAttention(nn.Module):
    """Multi-head scaled dot-product self-attention (SMITH, equation 2)."""

    def __init__(self, hidden_size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, states: Tensor, bias: Tensor, groups: Tensor | None = None) -> Tensor:
        """Attend within each row: states [N, T, H], bias [N, 1, 1, T] -> [N, T, H].

        With `groups` [N, G, T], averages of states attend instead of the states: -> [N, G, H].
        """
        projected = self.query_key_value(states).unflatten(-1, (3, self.heads, -1))
        query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # each [N, A, T, H/A]
        if groups is not None:
            query = groups[:, None] @ query  # [N, A, G, H/A]
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=self.dropout if self.training else 0.0
        )  # [N, A, T or G, H/A]
        output: Tensor = self.output(context.transpose(1, 2).flatten(-2))
        return output


class TransformerLayer(nn.Module):
    """One post-norm Transformer layer, as in BERT, around an attention."""

    def __init__(
        self,
        attention: nn.Module,
        hidden_size: int,
        intermediate_size: int,
        dropout: float,
        epsilon: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(hidden_size, eps=epsilon)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, bias: Tensor, groups: Tensor | None = None) -> Tensor:
        """Transform states [N, T, H] under an attention bias [N, 1, 1, T].

        With averages of states, `groups` [N, G, T], into [N, G, H].
        """
        attended = self.dropout(self.attention(states, bias, groups))
        return self.feed_forward((states if groups is None else groups @ states) + attended)

    def feed_forward(self, attended: Tensor) -> Tensor:
        """Normalise and transform each state of [N, T, H] by itself."""
        states = self.attention_norm(attended)
        transformed = self.dropout(self.output(F.gelu(self.intermediate(states))))
        result: Tensor = self.output_norm(states + transformed)
        return result


def attention_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask [N, T] of ones and zeros into an additive attention bias [N, 1, 1, T]."""
    return (1.0 - mask[:, None, None, :].to(dtype)) * MASK_VALUE


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Average states [N, T, H] over the places where mask [N, T] is 1 -> [N, H]."""
    weights = mask[:, :, None].to(states.dtype)  # [N, T, 1]
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def group_tokens(mask: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Divide tokens into groups of `size` neighbours (as Funnel-Transformer, Dai et al. 2020).

    Args:
        mask: [N, T], 1 for a token and 0 for padding.
        size: tokens of a group; the last one may have fewer.
        dtype: of the results.

    Returns:
        [N, G, T], each row the weights that average the tokens of a group, and [N, G], how many
        tokens it has: 0 where all are padding.
    """
    places = torch.arange(mask.shape[1], device=mask.device)  # [T]
    starts = torch.arange(0, mask.shape[1], size, device=mask.device)[:, None]  # [G, 1]
    members = ((places >= starts) & (places < starts + size)).to(dtype)  # [G, T]
    weights = members * mask[:, None, :].to(dtype)  # [N, G, T]
    counts = weights.sum(-1)  # [N, G]
    return weights / counts[:, :, None].clamp(min=1.0), counts


def initialise_as_bert(module: nn.Module) -> None:
    """Initialise as BERT does: normal with deviation 0.02, biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def project_first(projection: nn.Linear) -> None:
    """Make a projection return the first of its inputs as they are."""
    with torch.no_grad():
        projection.weight.copy_(torch.eye(projection.out_features, projection.in_features))
        projection.bias.zero_()


Pooling = Literal["cls", "mean"]


class TokenEncoder(nn.Module):
    """A module that reads tokens through Transformer layers.

    Attributes:
        layers: from the first to the last.
        token_embedding: a row for each token id.
    """

    layers: nn.ModuleList
    token_embedding: nn.Embedding

    def last_layers(self, count: int) -> list[nn.Module]:
        """Return the last layers, and what follows them."""
        return list(self.layers[len(self.layers) - count :])


class BlockEncoder(TokenEncoder):
    """The sentence level: tokens of a sentence block -> its block vector (section 4.1.2)."""

    def __init__(self, config: "SmithConfig | ColdeConfig") -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.block_length, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = transformer(config, config.sentence_layers)
        self.projection = nn.Linear(config.hidden_size, config.hidden_size)

    def last_layers(self, count: int) -> list[nn.Module]:
        """Return the last layers and the projection."""
        return [*super().last_layers(count), self.projection]

    def token_states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the contextual token representations T_j: [N, T], [N, T] -> [N, T, H].

        Those that the layers before the pooled ones give, where there are pooled ones.
        """
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        embedded = self.token_embedding(input_ids) + self.position_embedding(positions)  # eq. 1
        states: Tensor = self.dropout(self.embedding_norm(embedded))  # [N, T, H]
        bias = attention_bias(attention_mask, states.dtype)
        for layer in self.layers[: len(self.layers) - self.config.pooled_layers]:
            states = layer(states, bias)
        return states

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode sentence blocks: [N, T], [N, T] -> [N, H] of unit norm."""
        return self.pool(self.token_states(input_ids, attention_mask), attention_mask)

    def pool(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the block vectors of token states: [N, T, H], [N, T] -> [N, H] of unit norm."""
        if self.config.pooled_layers:
            pooled = masked_mean(*self._read_pooled(states, attention_mask))
        elif self.config.pooling == "cls":
            pooled = states[:, 0]
        else:
            pooled = masked_mean(states, attention_mask)  # [N, H]
        return F.normalize(self.projection(pooled), dim=-1)

    def _read_pooled(self, states: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Go on with groups of tokens: [N, T, H], [N, T] -> [N, G, H] and their tokens [N, G].

        In the first pooled layer groups attend to tokens, in the others to groups.
        """
        averages, counts = group_tokens(attention_mask, self.config.pooled_tokens, states.dtype)
        first, *others = self.layers[len(self.layers) - self.config.pooled_layers :]
        groups = first(states, attention_bias(attention_mask, states.dtype), averages)
        bias = attention_bias(counts.clamp(max=1.0), states.dtype)
        for layer in others:
            groups = layer(groups, bias)
        return groups, counts


def transformer(config: "SmithConfig | ColdeConfig", layers: int) -> nn.ModuleList:
    """Make Transformer layers of the sizes of a configuration."""
    return nn.ModuleList(
        TransformerLayer(
            SelfAttention(config.hidden_size, config.attention_heads, config.dropout),
            config.hidden_size,
            config.intermediate_size,
            config.dropout,
            config.layer_norm_epsilon,
        )
        for _ in range(layers)
    )


class Bidirectional(nn.Module):
    """Two recurrent layers, of which the backward one begins at the last row, not in padding."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(input_size, output_size // 2, batch_first=True)
        self.backwards = nn.LSTM(input_size, output_size // 2, batch_first=True)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Read states [D, S, H], padding last under mask [D, S] -> [D, S, output_size]."""
        lengths = mask.long().sum(1, keepdim=True)  # [D, 1]
        places = torch.arange(states.shape[1], device=states.device)[None]  # [1, S]
        turned = torch.where(
            places < lengths, lengths - 1 - places, places
        )  # [D, S], undoes itself
        there = self.forwards(states)[0]
        back = _at(self.backwards(_at(states, turned))[0], turned)
        return torch.cat([there, back], dim=-1)


def _at(states: Tensor, places: Tensor) -> Tensor:
    """Return the states [D, S, H] at places [D, S]."""
    return states.gather(1, places[:, :, None].expand_as(states))

"""The Transformer layer and the reductions that more than one architecture uses."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MASK_VALUE = -1e4  # low enough that softmax gives 0, and still finite in fp16


class SelfAttention(nn.Module):
    """Multi-head scaled dot-product self-attention (SMITH, equation 2)."""

    def __init__(self, hidden_size: int, heads: int, dropout: float) -> None:
        super().__init__()
        if hidden_size % heads:
            raise ValueError(f"hidden_size {hidden_size} is no multiple of {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, states: Tensor, bias: Tensor) -> Tensor:
        """Attend within each row: states [N, T, H], bias [N, 1, 1, T] -> [N, T, H]."""
        projected = self.query_key_value(states).unflatten(-1, (3, self.heads, -1))
        query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # each [N, A, T, H/A]
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=self.dropout if self.training else 0.0
        )  # [N, A, T, H/A]
        output: Tensor = self.output(context.transpose(1, 2).flatten(-2))
        return output


class TransformerLayer(nn.Module):
    """One post-norm Transformer layer, as in BERT."""

    def __init__(
        self, hidden_size: int, heads: int, intermediate_size: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden_size, heads, dropout)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=epsilon)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, bias: Tensor) -> Tensor:
        """Transform states [N, T, H] under an attention bias [N, 1, 1, T]."""
        attended = self.dropout(self.attention(states, bias))
        states = self.attention_norm(states + attended)
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


def masked_sum(states: Tensor, mask: Tensor) -> Tensor:
    """Sum states [N, T, H] over the places where mask [N, T] is 1 -> [N, H]."""
    return (states * mask[:, :, None].to(states.dtype)).sum(1)


def initialise_as_bert(module: nn.Module) -> None:
    """Initialise as BERT does: normal with deviation 0.02, biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)

"""Attention to a segment and a memory, with positions relative to the query."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RelativeAttention(nn.Module):
    """Multi-head attention from a segment to itself and the memory (equations 1 and 3).

    Positions are relative (Shaw et al. 2018, equation 4): to each key a vector of its distance from
    the query is added, which all heads share.
    """

    def __init__(
        self, hidden_size: int, heads: int, dropout: float, *, tokens: int, memory: int
    ) -> None:
        """Make it for segments of at most so many tokens, and a memory of so many states."""
        super().__init__()
        if hidden_size % heads:
            raise ValueError(f"hidden_size {hidden_size} is no multiple of {heads} heads")
        self.heads = heads
        self.longest = tokens
        self.memory_length = memory
        self.dropout = dropout
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.distance_embedding = nn.Embedding(memory + 2 * tokens - 1, hidden_size // heads)

    def forward(self, states: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        """Attend: states [D, T, H], memory [D, m, H], bias [D, 1, 1, m + T] -> [D, T, H]."""
        context = torch.cat([memory, states], dim=1)  # [D, m + T, H]
        query = self.query(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [D, A, T, H/A]
        projected = self.key_value(context).unflatten(-1, (2, self.heads, -1))
        key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # each [D, A, m + T, H/A]
        distances = self.distance_scores(query) / query.shape[-1] ** 0.5
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=distances + bias,
            dropout_p=self.dropout if self.training else 0.0,
        )  # [D, A, T, H/A]
        output: Tensor = self.output(attended.transpose(1, 2).flatten(-2))
        return output

    def distance_scores(self, query: Tensor) -> Tensor:
        """Multiply queries [D, A, T, H/A] by the vector of each key's distance: [D, A, T, m + T].

        Products with all distances are computed at once, and each row of them is moved by one place
        more than the row above: the distance of a key falls by one from a query to the next.
        """
        tokens = query.shape[2]
        count = self.memory_length + 2 * tokens - 1  # from the first key to the last one's
        start = self.longest - tokens
        vectors = self.distance_embedding.weight[start : start + count]
        products = F.pad(query @ vectors.T, (0, 1)).flatten(-2)  # [D, A, T * (count + 1)]
        moved = products[..., tokens - 1 : tokens - 1 + tokens * count]
        rows = moved.reshape(*query.shape[:3], count)
        return rows[..., : self.memory_length + tokens]

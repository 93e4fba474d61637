"""Match-Ignition's cross-encoder: PageRank inside a Transformer (the Match-Ignition paper, 3.2).

It reads the sentences of both texts that sentence ranking selected
(`encoder/reranker/sentence_ranking.py`) as one sequence, [CLS] a [SEP] b [SEP]. In each layer the
attention between words is a graph; PageRank over it says which words matter, and the least
important ones do not reach the next layer.
"""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, cast

import torch
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.architecture import STRICT, Share, TrainableModel
from training.models.layers import TokenEncoder, attention_bias, initialise_as_bert
from training.models.weights import FEED_FORWARD, BertWeights

Importance = Literal["pagerank", "attention", "norm", "random"]

DAMPING = 0.85  # d of equation 6, as in the paper
_PADDING = -1.0  # below every importance, which is from 0 to 1
_THOUSANDTHS = 1_000
_BERT_LAYER_NAMES = {
    "query": ("attention.self.query",),
    "key_value": ("attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    **FEED_FORWARD,
}


@dataclass(frozen=True, slots=True, config=STRICT)
class MatchIgnitionConfig:
    """Sizes and choices of one cross-encoder. The defaults are BERT base's and the paper's.

    Attributes:
        vocabulary_size: rows of the token embedding.
        length: tokens of a pair that there are positions for, special tokens included (N).
        hidden_size: width of the states (E).
        intermediate_size: width of the feed-forward layers.
        attention_heads: heads of each layer (H).
        layers: Transformer layers (L).
        reduction: share of words that each layer drops (alpha); 0 drops none.
        importance: decides which words are dropped: "pagerank" is the paper's; "attention" (what
            a word is given), "norm" (of its state) and "random" are those of its Table 7.
        iterations: steps of PageRank (T).
        dropout: share of activations dropped in training.
        layer_norm_epsilon: BERT's.
    """

    vocabulary_size: PositiveInt = 30_522
    length: PositiveInt = 512
    hidden_size: PositiveInt = 768
    intermediate_size: PositiveInt = 3_072
    attention_heads: PositiveInt = 12
    layers: PositiveInt = 12
    reduction: Share = 0.1
    importance: Importance = "pagerank"
    iterations: PositiveInt = 8
    dropout: Share = 0.1
    layer_norm_epsilon: float = 1e-12

    def __post_init__(self) -> None:
        if self.hidden_size % self.attention_heads:
            raise ValueError(f"hidden_size must be a multiple of {self.attention_heads} heads")

    def kept_share(self, layer: int) -> int:
        """Return how many of a thousand words are left after a layer, counted from 1.

        An integer, so that PyTorch and ONNX Runtime compute equal lengths.
        """
        return round(_THOUSANDTHS * (1.0 - self.reduction) ** layer)


def kept_length(tokens: Tensor | int, share: int) -> Tensor | int:
    """Return how many of `tokens` are left of a pair: `share` thousandths, and at least three.

    [CLS] and the two [SEP] are never dropped.
    """
    kept = tokens * share // _THOUSANDTHS
    return kept.clamp(min=3) if isinstance(kept, Tensor) else max(3, kept)


class FilteringLayer(nn.Module):
    """One post-norm Transformer layer, as in BERT, that drops words after its attention.

    What follows the attention treats each word by itself, so that dropping words before it gives
    the states that dropping them after it would give, and costs less.
    """

    def __init__(self, config: MatchIgnitionConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(hidden, 2 * hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.intermediate = nn.Linear(hidden, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, mask: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from `queries` [N, Q, E] to states [N, T, E] under a mask [N, T].

        Returned are the attended queries [N, Q, E] and the attention, averaged over the heads,
        [N, Q, T] (equation 7).
        """
        heads = self.config.attention_heads
        query = self.query(queries).unflatten(-1, (heads, -1)).transpose(1, 2)  # [N, H, Q, E/H]
        both = self.key_value(states).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        key, value = both.unbind(0)  # each [N, H, T, E/H]
        weights = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        weights = torch.softmax(weights.float() + attention_bias(mask, torch.float32), dim=-1)
        context = self.dropout(weights).to(value.dtype) @ value  # [N, H, Q, E/H]
        attended = self.dropout(self.attention_output(context.transpose(1, 2).flatten(-2)))
        return self.attention_norm(queries + attended), weights.detach().mean(1)

    def feed_forward(self, states: Tensor) -> Tensor:
        """Transform each state of [N, T, E] by itself."""
        transformed = self.dropout(self.output(F.gelu(self.intermediate(states))))
        result: Tensor = self.output_norm(states + transformed)
        return result


class CrossEncoder(TokenEncoder):
    """Tokens of a pair -> the last state of [CLS]."""

    def __init__(self, config: MatchIgnitionConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.length, config.hidden_size)
        self.type_embedding = nn.Embedding(2, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(FilteringLayer(config) for _ in range(config.layers))

    def forward(self, input_ids: Tensor, token_types: Tensor, special: Tensor) -> Tensor:
        """Read pairs: arguments as of `MatchIgnition.forward`, all [N, T] -> [N, E]."""
        length = input_ids.shape[1]
        positions = torch.arange(length, device=input_ids.device)
        embedded = self.token_embedding(input_ids) + self.position_embedding(positions)
        states = self.dropout(self.embedding_norm(embedded + self.type_embedding(token_types)))
        words = (special >= 0).sum(1, keepdim=True)  # [N, 1], without padding
        *filtering, last = (cast(FilteringLayer, layer) for layer in self.layers)
        for number, layer in enumerate(filtering, start=1):
            mask = (special >= 0).to(torch.float32)
            attended, weights = layer(states, mask, states)
            if self.config.reduction > 0:
                share = self.config.kept_share(number)
                scores = _rank_words(self.config, weights, mask, attended)
                order = _most_important(scores, special, kept_length(length, share))
                attended = _take(attended, order)
                special = special.gather(1, order)
                # a shorter pair of the batch keeps fewer words: the others become padding
                places = torch.arange(order.shape[1], device=order.device)
                special = torch.where(places < kept_length(words, share), special, -1)
            states = layer.feed_forward(attended)
        # only [CLS] is read, and it stands first
        mask = (special >= 0).to(torch.float32)
        attended, _ = last(states, mask, states[:, :1])
        return last.feed_forward(attended)[:, 0]


class MatchIgnition(TrainableModel):
    """The cross-encoder with its head: a pair -> the logit of its match probability."""

    config: MatchIgnitionConfig

    def __init__(self, config: MatchIgnitionConfig) -> None:
        super().__init__()
        self.config = config
        self.cross_encoder = CrossEncoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden_size, 1)
        self.apply(initialise_as_bert)

    @property
    def token_encoder(self) -> TokenEncoder:
        """All but the head."""
        return self.cross_encoder

    def forward(self, input_ids: Tensor, token_types: Tensor, special: Tensor) -> Tensor:
        """Score pairs.

        Args:
            input_ids: [N, T] token ids, special tokens included, [CLS] first.
            token_types: [N, T], 0 for the first text and 1 for the second.
            special: [N, T], 2 for [CLS], 1 for [SEP], 0 for a word and -1 for padding.

        Returns:
            [N] logits.
        """
        states = self.cross_encoder(input_ids, token_types, special)
        logits: Tensor = self.projection(self.dropout(states))[:, 0]
        return logits


def page_rank(attention: Tensor, mask: Tensor, iterations: int) -> Tensor:
    """Return the importance [N, T] of each word of the layer before, by PageRank (equation 8).

    Rows of attention [N, T, T] sum to 1, and so does the importance; padding of the mask [N, T] has
    none.
    """
    even = mask / mask.sum(1, keepdim=True)
    ranks = even
    for _ in range(iterations):
        ranks = DAMPING * (ranks[:, None] @ attention)[:, 0] + (1.0 - DAMPING) * even
    return ranks


def _rank_words(
    config: MatchIgnitionConfig, attention: Tensor, mask: Tensor, states: Tensor
) -> Tensor:
    """Return the importance [N, T] of the words that a layer made, from 0 to 1."""
    if config.importance == "random":
        return torch.rand_like(mask)
    if config.importance == "norm":
        norms: Tensor = states.detach().float().norm(dim=-1)
        return norms / (1.0 + norms)
    with _in_full_precision(attention.device):
        if config.importance == "attention":
            return (mask[:, None] @ attention)[:, 0] / mask.sum(1, keepdim=True)
        ranks = page_rank(attention, mask, config.iterations)
        redistributed: Tensor = (attention @ ranks[..., None])[..., 0]  # r = A u
        return redistributed


def _in_full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Disable bfloat16: the ranks of 256 words differ by less than its precision."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()  # the exporter would make a node of it


def _most_important(scores: Tensor, special: Tensor, kept: int | Tensor) -> Tensor:
    """Return the places [N, kept] of the words to keep, [CLS] first, then both [SEP]."""
    scores = torch.where(special > 0, special.to(scores.dtype) + 1.0, scores)
    scores = torch.where(special < 0, _PADDING, scores)
    return scores.topk(int(kept) if isinstance(kept, Tensor) else kept, dim=1).indices


def _take(states: Tensor, order: Tensor) -> Tensor:
    """Take the states [N, kept, E] of the places [N, kept]."""
    return states.gather(1, order[..., None].expand(-1, -1, states.shape[-1]))


def load_bert_into_pairs(encoder: CrossEncoder, folder: Path) -> None:
    """Copy the embeddings and the first layers of a BERT checkpoint into a cross-encoder."""
    config = encoder.config
    bert = BertWeights(folder)
    tensors = bert.embeddings() | {
        "type_embedding.weight": bert["embeddings.token_type_embeddings.weight"],
        "position_embedding.weight": bert["embeddings.position_embeddings.weight"][: config.length],
    }
    bert.copy_into(encoder, tensors | bert.layers(_BERT_LAYER_NAMES, config.layers))

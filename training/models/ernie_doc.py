"""ERNIE-Doc: a recurrence Transformer that reads a document twice (the ERNIE-Doc paper, section 3).

Segments are read in order. Each layer attends to its segment and to a memory of the segments
before it; every segment is fed twice, first to skim the document, then in retrospect. A segment is
a block of the tokenizer, and the document vector is made of the last segment's [CLS].

Differences from the paper: relative positions are those of Shaw et al. (2018), which it cites, of
keys only (their section 4.3 finds that those of values add nothing) and not clipped; a segment ends
with a sentence where it can; a block vector is the [CLS] of unit norm, before the projection.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from training.models.architecture import STRICT, EncoderConfig, EncoderModel
from training.models.layers import (
    TokenEncoder,
    TransformerLayer,
    attention_bias,
)
from training.models.weights import FEED_FORWARD, BertWeights

Recurrence = Literal["same_layer", "layer_below", "none"]

_BERT_LAYERS = {
    "attention.query": ("attention.self.query",),
    "attention.key_value": ("attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    **FEED_FORWARD,
}


@dataclass(frozen=True, slots=True, config=STRICT)
class ErnieDocConfig(EncoderConfig):
    """Sizes and choices of one ERNIE-Doc. The defaults are the paper's base size (section 4.2.2).

    A sentence block is a segment of L tokens; nothing in the model depends on `max_blocks`.

    Attributes:
        block_length: tokens of a segment (L): [CLS], [SEP] and one between them at least.
        sentence_layers: layers (N).
        memory_length: hidden states of earlier segments that each layer attends to (m).
        recurrence: what a layer remembers of the segments before: "same_layer", its own output
            (section 3.3); "layer_below", its input, as in Transformer-XL (section 3.1); "none".
        retrospective: whether every segment is fed twice (section 3.2).
    """

    block_length: Annotated[int, Field(ge=3)] = 512
    memory_length: PositiveInt = 128
    recurrence: Recurrence = "same_layer"
    retrospective: bool = True

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.retrospective and self.recurrence == "none":
            raise ValueError(
                'retrospective = true takes a memory: with recurrence = "none" nothing of the '
                "first reading reaches the second"
            )


class Memory(NamedTuple):
    """What each layer remembers of the segments before, the latest state last.

    Attributes:
        states: [N, D, m, H] of N layers and D documents, any values where there is none.
        mask: [D, m], 1 for a state and 0 where there is none, which comes first.
    """

    states: Tensor
    mask: Tensor


class RecurrentLayer(TransformerLayer):
    """One Transformer layer that attends to a memory, too."""

    def __init__(self, config: ErnieDocConfig) -> None:
        super().__init__(
            RelativeAttention(config),
            config.hidden_size,
            config.intermediate_size,
            config.dropout,
            config.layer_norm_epsilon,
        )

    def forward(self, states: Tensor, memory: Tensor, bias: Tensor) -> Tensor:  # type: ignore[override]
        """Transform states; as `RelativeAttention.forward`."""
        return self.feed_forward(states + self.dropout(self.attention(states, memory, bias)))


class SegmentEncoder(TokenEncoder):
    """One step: a segment and the memory -> its states and the memory for the next segment."""

    config: ErnieDocConfig

    def __init__(self, config: ErnieDocConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(RecurrentLayer(config) for _ in range(config.sentence_layers))

    def no_memory(self, documents: int) -> Memory:
        """Return the memory before the first segment of so many documents."""
        weight = self.token_embedding.weight
        size = (self.config.sentence_layers, documents, self.config.memory_length)
        states = weight.new_zeros(*size, self.config.hidden_size)
        return Memory(states, torch.zeros(size[1:], dtype=torch.int64, device=weight.device))

    def step(
        self, input_ids: Tensor, attention_mask: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Read one segment of each document.

        Args:
            input_ids: [D, T] token ids, special tokens included.
            attention_mask: [D, T], padding last; of a document without a segment here, 0 alone: its
                memory stays as it is.
            memory: of the segments before.

        Returns:
            [D, T, H] states of the last layer, and the memory for the next segment, without a
            gradient (SG in equation 3).
        """
        if input_ids.shape[1] > self.config.block_length:
            raise ValueError(
                f"a segment of {input_ids.shape[1]} tokens: this model reads at most "
                f"{self.config.block_length}"
            )
        states: Tensor = self.dropout(self.embedding_norm(self.token_embedding(input_ids)))
        mask = torch.cat([memory.mask, attention_mask.to(memory.mask.dtype)], dim=1)  # [D, m + T]
        bias = attention_bias(mask, states.dtype)
        kept = []
        for layer, remembered in zip(self.layers, memory.states.unbind(0), strict=True):
            below = states
            states = layer(below, remembered, bias)
            kept.append(below if self.config.recurrence == "layer_below" else states)
        if self.config.recurrence == "none":
            return states, memory
        return states, self._remember(memory, torch.stack(kept), mask)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read one segment, as `step`, with flat tensors as an exported graph has them.

        Returned are block vectors [D, H] of unit norm, states and mask of the next memory.
        """
        states, after = self.step(input_ids, attention_mask, Memory(memory, memory_mask))
        return _block_vectors(states), after.states, after.mask

    def _remember(self, memory: Memory, states: Tensor, mask: Tensor) -> Memory:
        """Keep the last m states [N, D, T, H]; mask [D, m + T] is that of the memory and them."""
        length = self.config.memory_length
        tokens = mask[:, length:].sum(1, keepdim=True)  # [D, 1], padding is never remembered
        places = tokens + torch.arange(length, device=mask.device)  # [D, m]
        both = torch.cat([memory.states, states.detach().to(memory.states.dtype)], dim=2)
        index = places[None, :, :, None].expand(*both.shape[:2], -1, both.shape[3])
        return Memory(both.gather(2, index), mask.gather(1, places))


class LastSegment(nn.Module):
    """The document level: the block vector of the last segment, projected and normalised."""

    def __init__(self, config: ErnieDocConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden_size, config.dimension)

    def forward(self, block_vectors: Tensor, block_mask: Tensor, _: None = None) -> Tensor:
        """Encode documents: [D, S, H], [D, S], padding last -> [D, dimension] of unit norm."""
        last = (block_mask.long().sum(1) - 1)[:, None, None]  # [D, 1, 1]
        vectors = block_vectors.gather(1, last.expand(-1, 1, block_vectors.shape[2]))[:, 0]
        return F.normalize(self.projection(self.dropout(vectors)), dim=-1)


class ErnieDoc(EncoderModel):
    """One tower of the Siamese pair, end to end.

    Its block vectors depend on the whole document: none can be computed or stored alone. Tokens are
    [D, S, T] of D documents of S segments; one without a single token is padding and comes last.
    """

    name = "ernie-doc"
    configuration = ErnieDocConfig
    block_level = SegmentEncoder
    document_level = LastSegment
    config: ErnieDocConfig
    block_encoder: SegmentEncoder
    document_encoder: LastSegment

    def segment_states(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Return the states [D, T, H] of each of the S segments, when all of them have been read.

        With gradients, a segment is computed again for its own, so that the activations of one
        segment at a time are held.
        """
        memory = self.block_encoder.no_memory(len(input_ids))
        if self.config.retrospective:
            memory = self._skim(input_ids, attention_mask, memory)
        found = []
        for ids, mask in _segments(input_ids, attention_mask):
            states, memory = checkpoint(
                self.block_encoder.step, ids, mask, memory, use_reentrant=False
            )
            found.append(states)
        return found

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the document vectors [D, dimension], of unit norm.

        The gradient is that of the last segment alone, as it stops at the memory: the other
        segments are read without a graph.
        """
        documents, segments, tokens = input_ids.shape
        last = attention_mask.amax(-1).long().sum(1) - 1  # [D]
        is_last = last[:, None] == torch.arange(segments, device=last.device)  # [D, S]
        memory = self.block_encoder.no_memory(documents)
        if self.config.retrospective:
            memory = self._skim(input_ids, attention_mask, memory)
        memory = self._skim(input_ids, attention_mask * ~is_last[:, :, None], memory)
        index = last[:, None, None].expand(-1, 1, tokens)
        mask = attention_mask.gather(1, index)[:, 0]  # [D, T]
        states, _ = self.block_encoder.step(input_ids.gather(1, index)[:, 0], mask, memory)
        result: Tensor = self.document_encoder(_block_vectors(states)[:, None], mask[:, :1])
        return result

    def load_bert(self, folder: Path) -> None:
        """Copy the embeddings and layers of a BERT checkpoint into the segment encoder.

        BERT adds to every token the embedding of its type and of its position. Type 0 and the mean
        of the positions are added to the token embedding; distances begin at zero and are to be
        trained.
        """
        bert = BertWeights(folder)
        tensors = bert.embeddings()
        same_for_all = bert["embeddings.token_type_embeddings.weight"][0]
        same_for_all = same_for_all + bert["embeddings.position_embeddings.weight"].mean(0)
        tensors["token_embedding.weight"] = tensors["token_embedding.weight"] + same_for_all
        tensors |= bert.layers(_BERT_LAYERS, self.config.sentence_layers)
        for name, weight in self.block_encoder.state_dict().items():
            if name.endswith("distance_embedding.weight"):
                tensors[name] = torch.zeros_like(weight)
        bert.copy_into(self.block_encoder, tensors)

    def _skim(self, input_ids: Tensor, attention_mask: Tensor, memory: Memory) -> Memory:
        """Read every segment for the memory that it leaves, without a gradient."""
        with torch.no_grad():
            for ids, mask in _segments(input_ids, attention_mask):
                if mask.any():
                    _, memory = self.block_encoder.step(ids, mask, memory)
        torch.clear_autocast_cache()  # which holds weights without a graph now
        return memory


def _block_vectors(states: Tensor) -> Tensor:
    """Return the block vectors [D, H] of the states [D, T, H] of segments: their [CLS]."""
    return F.normalize(states[:, 0], dim=-1)


def _segments(input_ids: Tensor, attention_mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens and mask of each segment, both [D, T]."""
    return zip(input_ids.unbind(1), attention_mask.unbind(1), strict=True)


class RelativeAttention(nn.Module):
    """Multi-head attention from a segment to itself and the memory (equations 1 and 3).

    Positions are relative (Shaw et al. 2018, equation 4): to each key a vector of its distance from
    the query is added, which all heads share.
    """

    def __init__(self, config: ErnieDocConfig) -> None:
        super().__init__()
        hidden_size, heads = config.hidden_size, config.attention_heads
        self.heads = heads
        self.longest = config.block_length
        self.memory_length = config.memory_length
        self.dropout = config.dropout
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.distance_embedding = nn.Embedding(
            self.memory_length + 2 * self.longest - 1, hidden_size // heads
        )

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

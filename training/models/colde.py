"""CoLDE: contrastive long document encoder (the CoLDE paper, section 3).

A document is cut into sections and a section into chunks; a chunk is a sentence block here. The
chunk level reads each chunk by itself, the section level the chunk vectors of a section.

Everything here is one tower of the Siamese pair. The chunkwise attention is between the sections
of one document: "the chunk that attends the most to other text chunks in the document" (3.2).
Nothing of the other document enters, so a document has one vector, which can be stored. The two
documents of a pair meet in the loss alone, and in what explains a match (4.3): the products of
their section vectors, and the chunkwise attention with the other document as the next section.

Where this differs from the paper:

* The embeddings of section and chunk are added to the chunk vectors, while the paper adds them to
  each token before BERT. A chunk vector then depends on its text alone: it can be cached by
  content, and an edit of a document costs only the changed chunks. The position embedding of
  tokens is as in the paper.
* A section is the mean over the states of the Bi-LSTM; the paper does not say which states it
  takes. The last ones would represent little more than the end of a section of a thousand chunks.
* The last section of a document attends to the first one, which the paper leaves open. A document
  that is not cut is a section whose successor is itself: so it is encoded outside of training.
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.architecture import (
    STRICT,
    EncoderConfig,
    EncoderModel,
    Sections,
)
from training.models.layers import (
    Bidirectional,
    BlockEncoder,
    Pooling,
    attention_bias,
    masked_mean,
    project_first,
)

Aggregate = Literal["lstm", "mean", "embedded_mean", "lstm_and_mean"]


@dataclass(frozen=True, slots=True, config=STRICT)
class ColdeConfig(EncoderConfig):
    """Sizes and choices of one CoLDE encoder. The defaults are the paper's (section 4.1.2).

    A sentence block is a chunk. `max_blocks` chunks of a section have an embedding; of a whole
    document when serving.

    Attributes:
        max_sections: sections of a document that have an embedding.
        chunk_heads: heads of the chunkwise attention.
        lstm_size: width of the Bi-LSTM's output, half of it for each direction.
        dimension: width of a section vector and of the document vector.
        pooling: a chunk is represented by its first token ("cls", the paper) or by the mean of its
            tokens ("mean", what most sentence encoders were trained with).
        aggregate: a section is read by attention and Bi-LSTM ("lstm", the paper), is the mean of
            its chunk vectors, as they are ("mean") or with the embeddings of section and chunk
            ("embedded_mean", the paper's CoLDE-LSTM, 4.5.2), or LSTM and mean side by side
            ("lstm_and_mean", which can begin as the mean).
        positions: whether chunks have the embeddings of section and chunk; without, and with one
            section in training, it is the paper's CoLDE-Aug (4.5.1).
    """

    max_sections: PositiveInt = 5
    chunk_heads: PositiveInt = 4
    lstm_size: Annotated[int, Field(gt=0, multiple_of=2)] = 512
    dimension: PositiveInt = 256
    pooling: Pooling = "cls"
    aggregate: Aggregate = "lstm"
    positions: bool = True

    pooled_layers: ClassVar[int] = 0  # every layer of the chunk level reads tokens
    pooled_tokens: ClassVar[int] = 1

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if not self.positions and not self.reads_order:
            raise ValueError(
                f"positions = false goes with attention and LSTM, not with {self.aggregate!r}: "
                'the mean without them is "mean"'
            )
        if self.hidden_size % self.chunk_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of {self.chunk_heads} chunk_heads"
            )

    @property
    def reads_order(self) -> bool:
        """Whether a section is read by attention and Bi-LSTM."""
        return self.aggregate in ("lstm", "lstm_and_mean")


class ChunkAttention(nn.Module):
    """Multi-headed chunkwise attention (section 3.2), from a section to the next one."""

    def __init__(self, hidden_size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def weights(self, chunks: Tensor, successors: Tensor, mask: Tensor) -> Tensor:
        """Return how much each chunk attends to each chunk of the successor: [D, A, S, T].

        Chunks are [D, S, H], those of the successors [D, T, H] with a mask [D, T]. Rows sum to 1.
        """
        query, key = self._split(self.query(chunks)), self._split(self.key(successors))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        return torch.softmax(scores + attention_bias(mask, scores.dtype), dim=-1)

    def mix(self, weights: Tensor, successors: Tensor) -> Tensor:
        """Return what chunks attend to: weights [D, A, S, T], successors [D, T, H] -> [D, S, H]."""
        context = weights @ self._split(self.value(successors))
        output: Tensor = self.output(context.transpose(1, 2).flatten(-2))
        return output

    def forward(self, chunks: Tensor, successors: Tensor, mask: Tensor) -> Tensor:
        """Attend; as `weights`, returns [D, S, H]."""
        return self.mix(self.weights(chunks, successors, mask), successors)

    def _split(self, states: Tensor) -> Tensor:
        heads: Tensor = states.reshape(*states.shape[:2], self.heads, -1)
        return heads.transpose(1, 2)  # [D, A, S, H/A]


class SectionEncoder(nn.Module):
    """The section level: chunk vectors of a section -> its vector (sections 3.1 and 3.2)."""

    def __init__(self, config: ColdeConfig) -> None:
        super().__init__()
        self.config = config
        features = config.hidden_size
        if config.aggregate != "mean":
            if config.positions:
                self.section_embedding = nn.Embedding(config.max_sections, config.hidden_size)
                self.chunk_embedding = nn.Embedding(config.max_blocks, config.hidden_size)
            self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        if config.reads_order:
            self.attention = ChunkAttention(config.hidden_size, config.chunk_heads)
            self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
            self.lstm = Bidirectional(config.hidden_size, config.lstm_size)
            features = config.lstm_size + (features if config.aggregate != "lstm" else 0)
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(features, config.dimension)

    def embed(self, chunk_vectors: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Add the embeddings of section and chunk (section 3.1), if it has them, and normalise.

        Chunk vectors are [D, S, H] before and after; all are of the first section without
        `numbers` [D].
        """
        embedded = chunk_vectors
        if self.config.positions:
            places = torch.arange(chunk_vectors.shape[1], device=chunk_vectors.device)
            embedded = embedded + self.chunk_embedding(places)
            if numbers is None:
                embedded = embedded + self.section_embedding.weight[0]
            else:
                embedded = embedded + self.section_embedding(numbers)[:, None]
        states: Tensor = self.dropout(self.embedding_norm(embedded))
        return states

    def forward(
        self, block_vectors: Tensor, block_mask: Tensor, sections: Sections | None = None
    ) -> Tensor:
        """Encode sections, or documents that are not cut: [D, S, H], [D, S] -> [D, dimension].

        Padding comes last, with any values; no row is empty. Vectors have unit norm.
        """
        if self.config.aggregate == "mean":
            return self.project(block_vectors, block_mask)
        chunks = self.embed(block_vectors, None if sections is None else sections.numbers)
        if not self.config.reads_order:
            return self.project(chunks, block_mask)
        followers, follower_mask = chunks, block_mask
        if sections is not None:
            followers, follower_mask = chunks[sections.successors], block_mask[sections.successors]
        attended = self.attention(chunks, followers, follower_mask)
        return self.project(block_vectors, block_mask, self.read(chunks, attended, block_mask))

    def read(self, chunks: Tensor, attended: Tensor, mask: Tensor) -> Tensor:
        """Read chunks [D, S, H] and what they attend to [D, S, H] -> [D, lstm_size]."""
        joined = self.attention_norm(chunks + self.dropout(attended))
        return masked_mean(self.lstm(joined, mask), mask)

    def project(self, vectors: Tensor, mask: Tensor, read: Tensor | None = None) -> Tensor:
        """Project what the aggregate names to section vectors [D, dimension] of unit norm."""
        mean = [] if self.config.aggregate == "lstm" else [masked_mean(vectors, mask)]
        parts = mean if read is None else [*mean, read]
        projected = self.projection(self.dropout(torch.cat(parts, dim=-1)))
        return F.normalize(projected, dim=-1)


class SectionReader(nn.Module):
    """One section of a document and the next one: what explains a match (section 4.3)."""

    def __init__(self, encoder: SectionEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self,
        block_vectors: Tensor,
        section: Tensor,
        next_block_vectors: Tensor,
        next_section: Tensor,
    ) -> tuple[Tensor, ...]:
        """Read a section of chunks [S, H] with the next one [T, H], by their numbers [].

        A number above the last one that has an embedding counts as that one.

        Returns:
            [dimension] section vector of unit norm, and, unless the aggregate is a mean, [S, T]
            how much each chunk attends to each of the next section, the mean over the heads.
        """
        encoder, own, following = self.encoder, block_vectors[None], next_block_vectors[None]
        mask, next_mask = torch.ones_like(own[..., 0]), torch.ones_like(following[..., 0])
        if encoder.config.aggregate == "mean":
            return (encoder.project(own, mask)[0],)
        last = encoder.config.max_sections - 1
        chunks = encoder.embed(own, section.clamp(max=last)[None])
        if not encoder.config.reads_order:
            return (encoder.project(chunks, mask)[0],)
        followers = encoder.embed(following, next_section.clamp(max=last)[None])
        weights = encoder.attention.weights(chunks, followers, next_mask)
        attended = encoder.attention.mix(weights, followers)
        vector = encoder.project(own, mask, encoder.read(chunks, attended, mask))
        return vector[0], weights[0].mean(0)


class Colde(EncoderModel):
    """One tower of the Siamese pair: both levels, end to end."""

    name = "colde"
    configuration = ColdeConfig
    block_level = BlockEncoder
    document_level = SectionEncoder
    config: ColdeConfig
    block_encoder: BlockEncoder
    document_encoder: SectionEncoder

    def __init__(self, config: ColdeConfig) -> None:
        super().__init__(config)
        if config.aggregate != "mean" and config.positions:
            # Positions that training never sees add nothing, however long the document.
            nn.init.zeros_(self.document_encoder.section_embedding.weight)
            nn.init.zeros_(self.document_encoder.chunk_embedding.weight)

    @property
    def section_reader(self) -> SectionReader:
        """Reads the sections of a document one by one."""
        return SectionReader(self.document_encoder)

    def begin_as_mean(self) -> None:
        """Begin as the mean of the chunk vectors; see `EncoderModel`."""
        config = self.config
        if config.aggregate in ("lstm", "embedded_mean"):
            raise ValueError(
                f"aggregate={config.aggregate!r} cannot begin as the mean of the chunks"
            )
        if config.dimension != config.hidden_size:
            raise ValueError("beginning as the mean takes hidden_size dimensions")
        project_first(self.document_encoder.projection)

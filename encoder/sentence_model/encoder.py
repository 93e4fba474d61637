"""A sentence model as an encoder: the vector of a document is the mean of those of its blocks.

A block is read as sentence-transformers reads a text: special tokens, the prompt, the text; the
vectors of the tokens are pooled, cut to the dimension (Matryoshka) and brought to unit norm. On a
CPU each block is one call on one thread, as of an `OnnxEncoder`; on a GPU blocks of like length
share a call.
"""

import time
from collections.abc import Sequence

import numpy as np

from encoder.arrays import Float32, Int64, unit
from encoder.checkpoint import Checkpoint
from encoder.device.packing import BlockPacking
from encoder.encoder import Encoder, WarmRun
from encoder.errors import ParityError
from encoder.golden import GOLDEN_TEXTS
from encoder.onnx_encoder import usable_cores
from encoder.sentence_model.folder import SentenceModel
from encoder.sentence_model.transformer import open_transformer

_GPU_BATCH_TOKENS = 16_384


class BlockMeanEncoder(Encoder):
    """An encoder whose document vectors are the means of those of the blocks, at unit norm."""

    def encode_document(self, blocks: Sequence[Sequence[int]], block_vectors: Float32) -> Float32:
        """Return the mean of the vectors of the blocks: [dimension], unit norm."""
        if not len(block_vectors):
            raise ValueError("a document with no block has no vector")
        vector: Float32 = unit(block_vectors.mean(axis=0, keepdims=True))[0]
        return vector

    def warm_up(self) -> WarmRun:
        """Encode known blocks, so that the first request is not slow.

        Raises:
            ParityError: a vector is not finite, as of half precision that overflows.
        """
        blocks = [block for text in GOLDEN_TEXTS for block in self.read(text).blocks][:16]
        started = time.perf_counter()
        vectors = self.encode_blocks(blocks)
        seconds = time.perf_counter() - started
        if not np.isfinite(vectors).all():
            raise ParityError(f"{self.checkpoint.name}: vectors in {self.precision} are not finite")
        return WarmRun(blocks, vectors, sum(map(len, blocks)) / seconds)


class SentenceModelEncoder(BlockMeanEncoder):
    """An encoder of a sentence model that this machine computes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        precision: str | None = None,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """Open the model; arguments as of `OnnxEncoder`, but the default precision is fp32."""
        self._model: SentenceModel = checkpoint.model["sentence_model"]
        self.checkpoint = checkpoint
        having = checkpoint.precisions
        self.precision = precision or ("fp32" if "fp32" in having else having[0])
        self._transformer = open_transformer(checkpoint, self.precision, providers)
        self.provider = self._transformer.provider
        on_cpu = self._transformer.on_cpu
        self.threads = threads or (usable_cores() if on_cpu else 1)
        default = 0 if on_cpu else _GPU_BATCH_TOKENS
        self.batch_tokens = default if batch_tokens is None else batch_tokens
        before, after = self._model.before, self._model.after
        self._packing = BlockPacking(
            self.batch_tokens, checkpoint.block_length, before, after, checkpoint.padding_token
        )

    def encode_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Encode N sentence blocks on the calling thread: [N, block_dimension]."""
        vectors = np.empty((len(blocks), self.checkpoint.block_dimension), dtype=np.float32)
        for rows in self._packing.calls(blocks):
            ids, mask = self._packing.pad([blocks[row] for row in rows])
            tokens = self._transformer.run(ids, mask)[: len(rows)]  # the others fill the call up
            vectors[rows] = self._pool(tokens, mask[: len(rows)])
        return vectors

    def _pool(self, tokens: Float32, mask: Int64) -> Float32:
        """Pool the vectors [B, T, width] of tokens: [B, block_dimension], unit norm."""
        if self._model.pooling == "cls":
            pooled = tokens[:, 0]
        elif self._model.pooling == "lasttoken":
            pooled = tokens[np.arange(len(tokens)), mask.sum(axis=1) - 1]
        else:
            counted = mask.copy()
            if not self._model.pools_prompt:
                counted[:, : len(self._model.before)] = 0
            pooled = np.einsum("bt,bth->bh", counted, tokens) / counted.sum(axis=1)[:, None]
        return unit(pooled[:, : self.checkpoint.block_dimension])

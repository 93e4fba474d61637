"""The port of encoders: what turns the sentence blocks of documents into vectors.

Callers name it and never an implementation; what all of these do alike is written here. A
`Checkpoint` says which encoder it is; a name leads to it by `encoder.opening.find_encoder`, and
from it to the encoder by `open_encoder`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from encoder.arrays import Float32
from encoder.block_selection import open_document_tokenizer
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import Checkpoint, vector_space
from encoder.comparison.sections import SectionReader
from encoder.tokenizer import BlockTokenizer

BLOCKS_A_TASK = 16  # of a thread: to hand over each block by itself costs a tenth of encoding it


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Vectors of a batch of documents.

    Attributes:
        document_vectors: [D, dimension], unit norm.
        block_vectors: for each document [S, block_dimension], of the blocks encoded, unit norm.
    """

    document_vectors: Float32
    block_vectors: tuple[Float32, ...]


@dataclass(frozen=True, slots=True)
class WarmRun:
    """One timed run of known blocks, on one thread.

    Attributes:
        blocks: that were encoded.
        vectors: [N, block_dimension] of them.
        tokens_per_second: of the blocks.
    """

    blocks: Sequence[Sequence[int]]
    vectors: Float32
    tokens_per_second: float


class Encoder(Protocol):
    """An encoder that can be called from any number of threads.

    Attributes:
        checkpoint: which encoder it is, and what was fitted for it.
        precision: of the numbers that it computes with.
        provider: what computes: an execution provider, a device or a server.
        threads: number of threads that can usefully call concurrently.
        batch_tokens: tokens of a call that takes many blocks; 0 means one block a call.
        recurrent: whether the vector of a block depends on the other blocks of its document.
    """

    checkpoint: Checkpoint
    precision: str
    provider: str
    threads: int
    batch_tokens: int
    recurrent: bool = False

    @property
    def dimension(self) -> int:
        """Width of a document vector."""
        return self.checkpoint.dimension

    @property
    def fingerprint(self) -> str:
        """Fingerprint of its vectors: those of equal fingerprints can be compared."""
        return vector_space(self.checkpoint).fingerprint

    @property
    def section_reader(self) -> SectionReader | None:
        """What makes vectors of sections, by a learned projection; None where nothing does."""
        return None

    @cached_property
    def read(self) -> BlockTokenizer:
        """What splits a text into the sentence blocks that it encodes."""
        return open_document_tokenizer(self.checkpoint)

    def encode(self, documents: Sequence[SentenceBlocks]) -> EncodedBatch:
        """Encode many documents with all threads; for offline work."""
        split = self.encode_block_vectors(documents)
        vectors = self.encode_documents([document.blocks for document in documents], split)
        return EncodedBatch(document_vectors=vectors, block_vectors=tuple(split))

    def encode_block_vectors(self, documents: Sequence[SentenceBlocks]) -> list[Float32]:
        """Return the vectors [S, block_dimension] of the blocks to encode of each document.

        With all threads; for offline work.
        """
        if not documents:
            return []
        of_each = [document.to_encode for document in documents]
        if self.recurrent:
            with ThreadPoolExecutor(self.threads) as pool:
                return list(pool.map(self.encode_blocks, of_each))
        vectors = self.encode_many_blocks([block for blocks in of_each for block in blocks])
        return np.split(vectors, np.cumsum([len(blocks) for blocks in of_each])[:-1])

    def encode_many_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Encode N blocks of many documents with all threads: [N, block_dimension]."""
        if self.batch_tokens or not blocks:
            return self.encode_blocks(blocks)
        size = max(1, min(BLOCKS_A_TASK, len(blocks) // (4 * self.threads)))
        tasks = [blocks[start : start + size] for start in range(0, len(blocks), size)]
        with ThreadPoolExecutor(self.threads) as pool:
            return np.concatenate(list(pool.map(self.encode_blocks, tasks)))

    def encode_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Encode N sentence blocks on the calling thread: [N, block_dimension].

        A recurrent encoder takes all blocks of one document, in their order.
        """
        ...

    def encode_document(self, blocks: Sequence[Sequence[int]], block_vectors: Float32) -> Float32:
        """Encode one document of block vectors [S, block_dimension]: [dimension], unit norm.

        Raises:
            ValueError: the document has no block.
        """
        ...

    def encode_documents(
        self, blocks: Sequence[Sequence[Sequence[int]]], block_vectors: Sequence[Float32]
    ) -> Float32:
        """Encode D documents, as `encode_document`, with all threads: [D, dimension]."""
        with ThreadPoolExecutor(self.threads) as pool:
            each = list(pool.map(self.encode_document, blocks, block_vectors))
        return np.array(each, dtype=np.float32).reshape(-1, self.dimension)

    def warm_up(self) -> WarmRun:
        """Encode known blocks, so that the first request is not slow, and check the result."""
        ...

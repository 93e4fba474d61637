"""Baselines of the sentence level alone: they use block vectors, but no document level."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from evaluation.encoded_corpus import EncodedCorpus
from evaluation.systems import System, vector_system
from index.errors import CorpusError

# About 512 tokens: the best of 2, 4 and 8 blocks on the validation queries of a corpus.
CHUNK_BLOCKS = 8
FIRST_TOKENS = 512
_CHUNKS_PER_CALL = 128


@dataclass(frozen=True, slots=True)
class CorpusBlocks:
    """The block vectors of N documents.

    Attributes:
        vectors: float16 or Float32[B, H], unit norm; may be memory-mapped.
        starts: Int64[N], the first block of each document.
        ends: Int64[N], the block after its last.
        block_ends: Int64[B], where the tokens of each block end, counted over all blocks.
    """

    vectors: NDArray[np.floating]
    starts: Int64
    ends: Int64
    block_ends: Int64


def find_blocks(encoded: EncodedCorpus, ids: Sequence[str]) -> CorpusBlocks:
    """Find the blocks of N documents in an encoded corpus, in the order of their ids.

    Raises:
        CorpusError: a document was not encoded; names it.
    """
    place = {document_id: number for number, document_id in enumerate(encoded.ids)}
    missing = [document_id for document_id in ids if document_id not in place]
    if missing:
        raise CorpusError(
            f"{len(missing)} documents have no blocks, the first of them {missing[0]!r}: "
            "was this corpus encoded in this folder?"
        )
    rows = encoded.rows[[place[document_id] for document_id in ids]]
    archive = encoded.archive
    starts = np.concatenate([[0], archive.document_ends[:-1]])
    return CorpusBlocks(
        archive.block_vectors, starts[rows], archive.document_ends[rows], archive.block_ends
    )


def mean_system(blocks: CorpusBlocks) -> System:
    """Make the system of the mean of all block vectors of each document."""
    vectors = mean_vectors(blocks, blocks.ends - blocks.starts)
    return vector_system("mean", "mean of the block vectors of the whole document", vectors)


def first_tokens_system(blocks: CorpusBlocks, tokens: int = FIRST_TOKENS) -> System:
    """Make the system of the mean of the block vectors within the first `tokens` tokens."""
    vectors = mean_vectors(blocks, blocks_within(blocks, tokens))
    settings = f"mean of the block vectors of the first {tokens} tokens"
    return vector_system(f"first{tokens}", settings, vectors)


def mean_vectors(blocks: CorpusBlocks, counts: Int64) -> Float32:
    """Average the first `counts` Int64[N] block vectors of each document; unit norm.

    A document without blocks gets zeros.
    """
    means = np.zeros((len(counts), blocks.vectors.shape[1]), dtype=np.float32)
    for row, (start, count) in enumerate(zip(blocks.starts, counts, strict=True)):
        if count:
            means[row] = blocks.vectors[start : start + count].astype(np.float32).mean(0)
    return _unit(means)


def blocks_within(blocks: CorpusBlocks, tokens: int) -> Int64:
    """Count the blocks of each document that end within its first tokens; at least one."""
    begins = np.concatenate([[0], blocks.block_ends])[blocks.starts]  # in tokens
    last = np.searchsorted(blocks.block_ends, begins + tokens, side="right")
    within: Int64 = np.minimum(np.maximum(last - blocks.starts, 1), blocks.ends - blocks.starts)
    return within


def chunk_system(blocks: CorpusBlocks) -> System:
    """Make the system of a chunking engine: every chunk of the query searches all chunks.

    A chunk is the mean of `CHUNK_BLOCKS` consecutive block vectors. The score of a document is the
    mean, over the chunks of the query, of the cosine with its best chunk; the score of a pair is
    the mean of both directions. The search is exact.
    """
    chunks, ends = _chunks(blocks)
    starts = np.concatenate([[0], ends[:-1]])
    filled = np.flatnonzero(ends > starts)  # reduceat accepts no empty range

    def best(rows: Int64) -> Float32:
        found = np.zeros((len(rows), len(ends)), dtype=np.float32)
        for number, row in enumerate(rows):
            found[number, filled] = _mean_of_best(
                chunks[starts[row] : ends[row]], chunks, starts[filled]
            )
        return found

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        scores = np.zeros(len(sources), dtype=np.float32)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            cosines = (
                chunks[starts[source] : ends[source]] @ chunks[starts[target] : ends[target]].T
            )
            if cosines.size:
                scores[number] = (cosines.max(0).mean() + cosines.max(1).mean()) / 2
        return scores

    settings = (
        f"chunks of {CHUNK_BLOCKS} blocks, mean over the query's chunks of the cosine with the "
        "best chunk of the document, exact search"
    )
    return System("chunks", settings, best, score_pairs)


def _mean_of_best(query: Float32, chunks: Float32, starts: Int64) -> Float32:
    total = np.zeros(len(starts), dtype=np.float32)
    for first in range(0, len(query), _CHUNKS_PER_CALL):
        cosines = query[first : first + _CHUNKS_PER_CALL] @ chunks.T  # [q, chunks]
        total += np.maximum.reduceat(cosines, starts, axis=1).sum(0)
    return total / np.float32(max(len(query), 1))


def _chunks(blocks: CorpusBlocks) -> tuple[Float32, Int64]:
    chunks: list[Float32] = []
    ends = np.zeros(len(blocks.starts), dtype=np.int64)
    total = 0
    for row, (start, end) in enumerate(zip(blocks.starts, blocks.ends, strict=True)):
        own = blocks.vectors[start:end].astype(np.float32)
        if len(own):
            firsts = np.arange(0, len(own), CHUNK_BLOCKS)
            chunks.append(np.add.reduceat(own, firsts, axis=0))
            total += len(firsts)
        ends[row] = total
    width = blocks.vectors.shape[1]
    stacked = np.concatenate(chunks) if chunks else np.zeros((0, width), dtype=np.float32)
    return _unit(stacked), ends


def _unit(vectors: Float32) -> Float32:
    unit: Float32 = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit

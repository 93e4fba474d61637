"""Documents of training with the block vectors of a sentence level that was trained.

A run that reads documents from their tokens stores no block vectors: what search needs beside the
graphs is fitted to vectors that are made for it, of so many documents as suffice.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from encoder.arrays import Float32
from encoder.block_archive import BlockArchive
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import EncodedCorpus
from index.progress import Progress


def select_documents(encoded: EncodedCorpus, places: Sequence[int]) -> EncodedCorpus:
    """Return some documents of a corpus, in the given order."""
    rows = list(places)
    return replace(
        encoded,
        ids=tuple(encoded.ids[place] for place in rows),
        hashes=tuple(encoded.hashes[place] for place in rows),
        rows=encoded.rows[rows],
        tokens=encoded.tokens[rows],
    )


def encode_again(encoded: EncodedCorpus, encoder: OnnxEncoder, progress: Progress) -> EncodedCorpus:
    """Return a corpus with the block vectors of an encoder, held in memory.

    Args:
        encoded: its blocks of tokens, cut by the tokenizer of this encoder.
        encoder: that reads them.
        progress: is notified of every document.
    """
    rows = encoded.rows.tolist()
    stored = encoded.archive
    progress.started("encoding for the fit of search", len(rows))

    def encode(row: int) -> Float32:
        vectors = encoder.encode_blocks(stored.blocks(row))
        progress.advanced(1)
        return vectors

    with ThreadPoolExecutor(encoder.threads) as pool:
        vectors = list(pool.map(encode, rows))
    archive = _archive(stored, rows, vectors)
    return replace(encoded, archive=archive, rows=np.arange(len(rows)))


def _archive(stored: BlockArchive, rows: Sequence[int], vectors: Sequence[Float32]) -> BlockArchive:
    blocks = [block for row in rows for block in stored.blocks(row)]
    return BlockArchive(
        key=replace(stored.key, block_dimension=vectors[0].shape[1]),
        tokens=np.concatenate([np.asarray(block, stored.tokens.dtype) for block in blocks]),
        block_ends=np.cumsum([len(block) for block in blocks], dtype=np.int64),
        block_vectors=np.concatenate(vectors).astype(np.float16),
        document_ends=np.cumsum([len(of_one) for of_one in vectors], dtype=np.int64),
    )

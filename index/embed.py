"""Vectors of a corpus without an index: `longmatch lab embed` and the input of evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32, Int64
from encoder.atomic_files import replace_durably
from encoder.encoder import Encoder
from index.build import encode_documents, group
from index.corpus.reader import count_documents, read_corpus
from index.errors import CorpusError
from index.progress import Progress


@dataclass(frozen=True, slots=True)
class EmbeddedCorpus:
    """The vectors of N documents.

    Attributes:
        ids: N document ids.
        vectors: Float32[N, dimension], unit norm.
        tokens: Int64[N], tokens of each document.
        tokens_read: Int64[N], those of them that were read.
        skipped: how many pieces of input were skipped.
        aligned: the aligned blocks of the documents; None without block vectors.
        space: that the blocks are in, and the vectors are compared in; likewise.
    """

    ids: tuple[str, ...]
    vectors: Float32
    tokens: Int64
    tokens_read: Int64
    skipped: int
    aligned: Sequence[AlignedBlocks] | None = None
    space: AlignmentSpace | None = None


def embed_corpus(corpus: Path, encoder: Encoder, progress: Progress) -> EmbeddedCorpus:
    """Encode every document of a corpus, in its order.

    Raises:
        CorpusError: the corpus cannot be read, or holds no document.
    """
    progress.started("encoding", count_documents(corpus))
    encoded = []
    skipped = 0
    for documents, lost in group(read_corpus(corpus), progress):
        results = encode_documents(documents, encoder, progress)
        skipped += lost + len(documents) - len(results)
        encoded += [(r.document.id, r.vector, r.receipt) for r in results]
    if not encoded:
        raise CorpusError(f"{corpus}: holds no document that can be read")
    return EmbeddedCorpus(
        ids=tuple(document_id for document_id, _, _ in encoded),
        vectors=np.stack([vector for _, vector, _ in encoded]),
        tokens=np.array([receipt.tokens for _, _, receipt in encoded], dtype=np.int64),
        tokens_read=np.array([receipt.tokens_read for _, _, receipt in encoded], dtype=np.int64),
        skipped=skipped,
    )


def write_embedded_corpus(path: Path, corpus: EmbeddedCorpus) -> None:
    """Write ids, vectors and tokens to an .npz file, whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        np.savez(
            file,
            ids=np.array(corpus.ids, dtype=np.str_),
            vectors=corpus.vectors,
            tokens=corpus.tokens,
            tokens_read=corpus.tokens_read,
        )
    replace_durably(temporary, path)

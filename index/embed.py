"""Vectors of a corpus without an index: `longmatch embed` and the input of evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from encoder.alignment.space import AlignedCorpus, read_space, write_space
from encoder.arrays import Float32, Int64
from encoder.atomic_files import replace_durably
from encoder.encoder import Encoder
from index.build import encode_documents, group, report_skipped
from index.corpus.reader import count_documents, read_corpus
from index.document import Document
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
        aligned: the aligned blocks of the documents, if block vectors were kept.
    """

    ids: tuple[str, ...]
    vectors: Float32
    tokens: Int64
    tokens_read: Int64
    skipped: int
    aligned: AlignedCorpus | None = None


def embed_corpus(corpus: Path, encoder: Encoder, progress: Progress) -> EmbeddedCorpus:
    """Encode every document of a corpus, in its order.

    Raises:
        CorpusError: the corpus cannot be read, or holds no document.
    """
    progress.started("encoding", count_documents(corpus))
    encoded = []
    skipped = 0
    for batch in group(report_skipped(read_corpus(corpus), progress)):
        documents = [item for item in batch if isinstance(item, Document)]
        results = encode_documents(documents, encoder, progress)
        skipped += len(batch) - len(results)
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
    """Write ids, vectors, tokens and aligned blocks to an .npz file, whole or not at all."""
    aligned = {} if corpus.aligned is None else _aligned_arrays(corpus.aligned)
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        np.savez(
            file,
            ids=np.array(corpus.ids, dtype=np.str_),
            vectors=corpus.vectors,
            tokens=corpus.tokens,
            tokens_read=corpus.tokens_read,
            **aligned,
        )
    replace_durably(temporary, path)


def read_embedded_corpus(path: Path) -> EmbeddedCorpus:
    """Read a file that `write_embedded_corpus` wrote.

    Raises:
        CorpusError: the file is missing, damaged or of another kind.
    """
    try:
        # opened here: NumPy does not close a file that is no archive
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return EmbeddedCorpus(
                ids=tuple(arrays["ids"].tolist()),
                vectors=arrays["vectors"],
                tokens=arrays["tokens"],
                tokens_read=arrays["tokens_read"],
                skipped=0,
                aligned=_read_aligned(arrays),
            )
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise CorpusError(f"{path}: not written by `longmatch embed`: {error}") from error


def read_aligned_corpus(path: Path) -> EmbeddedCorpus:
    """Read a file that `write_embedded_corpus` wrote, with aligned blocks.

    Raises:
        CorpusError: the file is missing, damaged, of another kind, or has no aligned blocks.
    """
    corpus = read_embedded_corpus(path)
    if corpus.aligned is None:
        raise CorpusError(
            f"{path}: holds no block vectors, which semantic and hybrid scores depend on: write it "
            "with `longmatch embed --blocks`"
        )
    return corpus


_SPACE, _BLOCKS = "alignment_space", ("codes", "scales", "hubness", "ends")


def _aligned_arrays(aligned: AlignedCorpus) -> dict[str, Any]:
    blocks = {name: getattr(aligned, name) for name in _BLOCKS}
    return {_SPACE: np.frombuffer(write_space(aligned.space), dtype=np.uint8), **blocks}


def _read_aligned(arrays: Mapping[str, Any]) -> AlignedCorpus | None:
    if _SPACE not in arrays:
        return None
    space = read_space(arrays[_SPACE].tobytes())
    return AlignedCorpus(space, *(arrays[name] for name in _BLOCKS))

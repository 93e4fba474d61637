"""The block archive: sentence blocks and block vectors of many documents on disk, memory-mapped.

What is slow about encoding is the sentence level. Whoever trains or compares document levels over
a frozen one computes its block vectors once and keeps them here.

archive.json        what made it: digests of the block graph and the tokenizer, sizes
progress.json       how many documents, blocks and tokens are committed
tokens.bin          token ids of all blocks, one after another, uint16 or uint32
block_ends.bin      Int64[B], where each block ends in the tokens
block_vectors.bin   Float16[B, H]
document_ends.bin   Int64[N], where each document ends in the blocks

Documents are appended in batches. A batch counts once `progress.json` says so, and that file is
replaced whole: a writer killed at any moment loses its last batch and nothing else.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder.archive_key import (
    KEY,
    ArchiveKey,
    read_json,
    read_key,
    replace_json,
    require_same,
    write_key,
)
from encoder.blocks import SentenceBlocks
from encoder.errors import ArchiveError

_PROGRESS = "progress.json"

Float16 = NDArray[np.float16]
Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlockArchive:
    """The committed documents of an archive; nothing of it is in memory before it is asked for.

    Attributes:
        key: what made it.
        tokens: uint16 or uint32 [T], token ids without special tokens.
        block_ends: Int64[B].
        block_vectors: Float16[B, H], unit norm.
        document_ends: Int64[N].
    """

    key: ArchiveKey
    tokens: NDArray[Any]
    block_ends: Int64
    block_vectors: Float16
    document_ends: Int64

    def __len__(self) -> int:
        return len(self.document_ends)

    def span(self, row: int) -> tuple[int, int]:
        """Return the first block of a document and the one after its last.

        Raises:
            IndexError: there is no such document.
        """
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of an archive of {len(self)} documents")
        return int(self.document_ends[row - 1]) if row else 0, int(self.document_ends[row])

    def vectors(self, row: int) -> Float16:
        """Return the block vectors [S, H] of one document."""
        start, stop = self.span(row)
        return self.block_vectors[start:stop]

    def blocks(self, row: int) -> tuple[Sequence[int], ...]:
        """Return the token ids of each block of one document, special tokens not included."""
        start, stop = self.span(row)
        ends = self.block_ends[start:stop]
        first = int(self.block_ends[start - 1]) if start else 0
        starts = [first, *ends[:-1].tolist()]
        return tuple(self.tokens[a:b].tolist() for a, b in zip(starts, ends, strict=True))


def read_block_archive(directory: Path, key: ArchiveKey | None = None) -> BlockArchive:
    """Open the committed documents of an archive.

    Args:
        directory: where it lies.
        key: of the checkpoint that shall read it; not compared when not given.

    Raises:
        ArchiveError: there is none, it is damaged, or something else made it.
    """
    found = read_key(directory)
    if key is not None:
        require_same(directory, found, key)
    counts = _read_progress(directory)
    arrays = {}
    for name, (kind, shape) in _layout(found, counts).items():
        path = directory / f"{name}.bin"
        _require_size(path, kind, shape)
        empty = 0 in shape  # nothing can be mapped of an empty file
        arrays[name] = (
            np.empty(shape, kind) if empty else np.memmap(path, kind, mode="r", shape=shape)
        )
    return BlockArchive(key=found, **arrays)


class BlockArchiveWriter:
    """Appends documents to an archive. One writer at a time; readers may be there meanwhile."""

    def __init__(self, directory: Path, key: ArchiveKey) -> None:
        """Open an archive for writing, a new one or one to go on with.

        What a killed writer left beyond the last commit is cut off.

        Raises:
            ArchiveError: the archive there is damaged, or something else made it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = key
        if not (directory / KEY).exists():
            self._begin()
        require_same(directory, read_key(directory), key)
        self._counts = _read_progress(directory)
        for name, (kind, shape) in _layout(key, self._counts).items():
            path = directory / f"{name}.bin"
            path.touch()
            _require_size(path, kind, shape)
            os.truncate(path, _bytes(kind, shape))

    def __len__(self) -> int:
        return self._counts.documents

    def append(self, documents: Sequence[SentenceBlocks], vectors: Sequence[Float32]) -> None:
        """Commit documents: after the return they are there whatever happens.

        Args:
            documents: D documents of at most `max_blocks` blocks each.
            vectors: for each the block vectors [S, H].

        Raises:
            ArchiveError: blocks and vectors do not fit each other or the key.
            OSError: the disk did not take it; nothing of it counts then.
        """
        for document, of_document in zip(documents, vectors, strict=True):
            self._check(document, of_document)
        if not documents:
            return
        blocks = [block for document in documents for block in document.blocks]
        counts = self._counts
        block_ends = counts.tokens + np.cumsum([len(block) for block in blocks], dtype=np.int64)
        ends = counts.blocks + np.cumsum([len(d.blocks) for d in documents], dtype=np.int64)
        self._write("tokens", np.concatenate([np.asarray(b, self._key.token_type) for b in blocks]))
        self._write("block_ends", block_ends)
        self._write("block_vectors", np.concatenate(vectors).astype(np.float16))
        self._write("document_ends", ends)
        self._counts = _Counts(len(self) + len(documents), int(ends[-1]), int(block_ends[-1]))
        replace_json(self._directory / _PROGRESS, asdict(self._counts))

    def _begin(self) -> None:
        if any(self._directory.glob("*.bin")):
            raise ArchiveError(f"{self._directory}: {KEY} is missing: this archive is damaged")
        # The key last: with it the directory is an archive, even one without a document.
        replace_json(self._directory / _PROGRESS, asdict(_Counts()))
        write_key(self._directory, self._key)

    def _check(self, document: SentenceBlocks, vectors: Float32) -> None:
        expected = (len(document.blocks), self._key.block_dimension)
        if vectors.shape != expected:
            raise ArchiveError(f"block vectors of shape {vectors.shape}, not {expected}")
        if not 0 < len(document.blocks) <= self._key.max_blocks:
            raise ArchiveError(
                f"a document of {len(document.blocks)} blocks: this archive takes 1 to "
                f"{self._key.max_blocks}"
            )

    def _write(self, name: str, array: NDArray[Any]) -> None:
        kind, shape = _layout(self._key, self._counts)[name]
        with (self._directory / f"{name}.bin").open("r+b") as file:
            file.seek(_bytes(kind, shape))  # a batch that failed before may have left bytes there
            file.write(array.tobytes())
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class _Counts:
    documents: int = 0
    blocks: int = 0
    tokens: int = 0


_Layout = dict[str, tuple[str, tuple[int, ...]]]


def _layout(key: ArchiveKey, counts: _Counts) -> _Layout:
    """Return the type and the committed shape of each raw file."""
    return {
        "tokens": (key.token_type, (counts.tokens,)),
        "block_ends": ("int64", (counts.blocks,)),
        "block_vectors": ("float16", (counts.blocks, key.block_dimension)),
        "document_ends": ("int64", (counts.documents,)),
    }


def _bytes(kind: str, shape: tuple[int, ...]) -> int:
    size = np.dtype(kind).itemsize
    for number in shape:
        size *= number
    return size


def _require_size(path: Path, kind: str, shape: tuple[int, ...]) -> None:
    expected = _bytes(kind, shape)
    size = path.stat().st_size if path.exists() else 0
    if size < expected:
        raise ArchiveError(f"{path}: has {size} bytes of {expected}: this archive is damaged")


def _read_progress(directory: Path) -> _Counts:
    content = read_json(directory / _PROGRESS)
    try:
        return _Counts(**{name: int(value) for name, value in content.items()})
    except (TypeError, ValueError) as error:
        raise ArchiveError(f"{directory / _PROGRESS}: not understood: {error}") from error

"""The block archive: sentence blocks and block vectors of many documents on disk, memory-mapped.

Encoding spends its time in the sentence level. To train or compare document levels over a frozen
one, its block vectors are computed once and stored here.

archive.json        what made it: digests of the block graph and the tokenizer, sizes
progress.json       how many documents, blocks and tokens are committed
tokens.bin          token ids of all blocks, one after another, uint16 or uint32
block_ends.bin      Int64[B], where each block ends in the tokens
block_vectors.bin   Float16[B, H]
document_ends.bin   Int64[N], where each document ends in the blocks

Documents are appended in batches. A batch counts once `progress.json` says so, and that file is
replaced whole: a writer killed at any moment loses its last batch and nothing else.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float16, Float32, Int64
from encoder.atomic_files import write_atomically
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import BLOCK_GRAPH, SENTENCE_MODEL, TOKENIZER, Checkpoint
from encoder.errors import ArchiveError

FORMAT = 1
KEY = "archive.json"


@dataclass(frozen=True, slots=True)
class ArchiveKey:
    """What determines the content of an archive, besides the texts.

    Attributes:
        block_encoder: SHA-256, in hex, of the graph that made the block vectors.
        tokenizer: SHA-256, in hex, of the tokenizer.
        block_length: tokens of a sentence block, special tokens included.
        long_sentence: how sentences longer than a block were handled.
        language: ISO 639-1 code, for the sentence splitter.
        max_blocks: sentence blocks read of a document, at most.
        block_dimension: width H of a block vector; 0 where there are tokens only.
        token_type: "uint16" or "uint32", as the vocabulary needs.
    """

    block_encoder: str
    tokenizer: str
    block_length: int
    long_sentence: str
    language: str
    max_blocks: int
    block_dimension: int
    token_type: str

    @property
    def tokens_only(self) -> bool:
        """Whether the archive has no block vectors."""
        return self.block_dimension == 0


def archive_key(
    checkpoint: Checkpoint,
    *,
    precision: str = "int8",
    max_blocks: int | None = None,
    tokens_only: bool = False,
) -> ArchiveKey:
    """Return the key of the archives that a checkpoint writes and can read.

    Args:
        checkpoint: of which only the sentence level and the tokenizer matter.
        precision: of the block graph.
        max_blocks: blocks read of a document; by default as many as the checkpoint reads.
        tokens_only: the archive is to have no block vectors.

    Raises:
        ArchiveError: the checkpoint has no block graph of this precision; or it is recurrent, so
            that its block vectors depend on how many blocks are read, and reads another number.
    """
    limit = max_blocks or checkpoint.max_blocks
    if checkpoint.segment_memory is not None and limit != checkpoint.max_blocks and not tokens_only:
        raise ArchiveError(
            f"{checkpoint.directory}: reads {checkpoint.max_blocks} blocks of a document, and the "
            f"vectors of each depend on all of them: they cannot be those of {limit} blocks"
        )
    graph = f"{precision}/{BLOCK_GRAPH}"
    digest = checkpoint.files.get(graph, "")
    if checkpoint.architecture == SENTENCE_MODEL:
        digest = f"{precision} of {checkpoint.fingerprint}"
    if not digest and not tokens_only:
        raise ArchiveError(f"{checkpoint.directory}: has no {graph}: export it first")
    vocabulary = int(checkpoint.model["vocabulary_size"])
    return ArchiveKey(
        block_encoder="" if tokens_only else digest,
        tokenizer=checkpoint.files.get(TOKENIZER, ""),  # a server has its own
        block_length=checkpoint.block_length,
        long_sentence=checkpoint.long_sentence,
        language=checkpoint.language,
        max_blocks=limit,
        block_dimension=0 if tokens_only else checkpoint.block_dimension,
        token_type="uint16" if vocabulary <= 2**16 else "uint32",
    )


def require_same(directory: Path, found: ArchiveKey, expected: ArchiveKey) -> None:
    """Check that an archive was made by the expected encoder."""
    here, there = asdict(found), asdict(expected)
    differing = [
        f"{name} {str(here[name])[:12]}, not {str(there[name])[:12]}"
        for name in here
        if here[name] != there[name]
    ]
    if differing:
        raise ArchiveError(
            f"{directory}: this archive was made with another encoder "
            f"({'; '.join(differing)}): name another directory"
        )


def read_key(directory: Path) -> ArchiveKey:
    """Read the key of an archive."""
    content = read_json(directory / KEY)
    try:
        if content.pop("format") != FORMAT:
            raise ArchiveError(f"{directory / KEY}: the format is not {FORMAT}")
        return ArchiveKey(**content)
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"{directory / KEY}: not understood: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ArchiveError(f"{path}: is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ArchiveError(f"{path}: is not a JSON object")
    return content


def replace_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, json.dumps(content))


_PROGRESS = "progress.json"


@dataclass(frozen=True, slots=True)
class BlockArchive:
    """The committed documents of an archive, memory-mapped.

    Attributes:
        key: of the encoder that made it.
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

    def without_vectors(self, width: int) -> "BlockArchive":
        """Return it for a model of block vectors [width] that reads tokens only: they are 0."""
        nothing = np.broadcast_to(np.zeros((), np.float16), (len(self.block_ends), width))
        return replace(self, block_vectors=nothing)

    def mean_tokens(self, max_blocks: int) -> float:
        """Return how many tokens the first blocks of a document have, the mean over documents."""
        ends = np.concatenate([[0], self.block_ends])
        starts = np.concatenate([[0], self.document_ends[:-1]])
        stops = np.minimum(starts + max_blocks, self.document_ends)
        return float((ends[stops] - ends[starts]).mean())

    def span(self, row: int) -> tuple[int, int]:
        """Return the first block of a document and the one after its last."""
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
    """Open the committed documents of an archive, which must have the key, if one is given."""
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
    """Appends documents to an archive: one writer at a time, and any number of readers."""

    def __init__(self, directory: Path, key: ArchiveKey) -> None:
        """Open an archive for writing: a new one, or one to continue.

        What a killed writer left beyond the last commit is truncated.
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
        """Commit documents of at most `max_blocks` blocks, each with its block vectors [S, H].

        Once this returns, they are durable; if a file cannot be written, none is committed.
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
        # The key comes last: with it the directory is an archive, even without a document.
        replace_json(self._directory / _PROGRESS, asdict(_Counts()))
        replace_json(self._directory / KEY, {"format": FORMAT, **asdict(self._key)})

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
            file.seek(_bytes(kind, shape))  # a batch that failed may have left bytes there
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
    return math.prod((np.dtype(kind).itemsize, *shape))


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

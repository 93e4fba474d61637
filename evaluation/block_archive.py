"""The block archive: sentence blocks and block vectors of many texts, in a file of SQLite.

Encoding spends its time in the sentence level. To train or compare document levels over a frozen
one, its block vectors are computed once and stored here. Texts are appended in batches: a writer
killed at any moment loses its last batch and nothing else.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from encoder.arrays import Float16, Float32, Int64
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import BLOCK_GRAPH, SENTENCE_MODEL, TOKENIZER, Checkpoint
from encoder.errors import ArchiveError
from index.sqlite.connections import DatabaseFormat, SQLiteConnections

ARCHIVE_FILE = "archive.sqlite3"
_ARCHIVE = DatabaseFormat(
    "block archives",
    application_id=0x4C4D4241,
    version=1,
    schema="""
CREATE TABLE archive (key TEXT NOT NULL);
CREATE TABLE texts (
    number INTEGER PRIMARY KEY,
    hash TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    lengths BLOB NOT NULL,
    token_ids BLOB NOT NULL,
    vectors BLOB NOT NULL
);
""",
)


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
    checkpoint: Checkpoint, *, precision: str = "int8", tokens_only: bool = False
) -> ArchiveKey:
    """Return the key of the archives that a checkpoint writes and can read.

    Args:
        checkpoint: of which only the sentence level and the tokenizer matter.
        precision: of the block graph.
        tokens_only: the archive is to have no block vectors.

    Raises:
        ArchiveError: the checkpoint has no block graph of this precision.
    """
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
        max_blocks=checkpoint.max_blocks,
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


def read_key(file: SQLiteConnections) -> ArchiveKey:
    """Read the key of an archive."""
    ((key,),) = file.read_rows("SELECT key FROM archive")
    return ArchiveKey(**json.loads(key))


@dataclass(frozen=True, slots=True)
class BlockArchive:
    """The committed texts of an archive; safe to use from many threads.

    Attributes:
        key: of the encoder that made it.
        tokens: Int64[N], how many tokens each text has, including those that are not read.
        sizes: Int64[N], how many blocks each text has.
        blocks: return the token ids of each block of a text, special tokens not included.
        vectors: return the block vectors Float16[S, H] of a text, of unit norm.
    """

    key: ArchiveKey
    tokens: Int64
    sizes: Int64
    blocks: Callable[[int], tuple[Sequence[int], ...]]
    vectors: Callable[[int], Float16]

    def __len__(self) -> int:
        return len(self.sizes)

    def without_vectors(self, width: int) -> "BlockArchive":
        """Return it for a model of block vectors [width] that reads tokens only: they are 0."""
        nothing = np.zeros((), np.float16)
        return replace(self, vectors=lambda row: np.broadcast_to(nothing, (self.sizes[row], width)))

    def mean_tokens(self, max_blocks: int) -> float:
        """Return how many tokens the first blocks of a text have, the mean over texts."""
        read = (self.blocks(row)[:max_blocks] for row in range(len(self)))
        return float(np.mean([sum(map(len, blocks)) for blocks in read]))


def read_block_archive(directory: Path, key: ArchiveKey | None = None) -> BlockArchive:
    """Open the committed texts of an archive, which must have the key, if one is given."""
    texts = _Texts(directory)
    if key is not None:
        require_same(directory, texts.key, key)
    return BlockArchive(texts.key, texts.tokens, texts.sizes, texts.blocks, texts.vectors)


class _Texts:
    """The texts in the file of an archive."""

    def __init__(self, directory: Path) -> None:
        self._file = SQLiteConnections(directory / ARCHIVE_FILE, read_only=True, kind=_ARCHIVE)
        finalize(self, self._file.close)
        self.key = read_key(self._file)
        rows = self._file.read_rows("SELECT tokens, blocks FROM texts ORDER BY number")
        self.tokens, self.sizes = np.array(rows, dtype=np.int64).reshape(-1, 2).T

    def blocks(self, row: int) -> tuple[Sequence[int], ...]:
        token_ids, lengths = self._read("token_ids, lengths", row)
        tokens = np.frombuffer(token_ids, self.key.token_type).tolist()
        ends = np.cumsum(np.frombuffer(lengths, np.uint16)).tolist()
        return tuple(tokens[start:end] for start, end in pairwise((0, *ends)))

    def vectors(self, row: int) -> Float16:
        (vectors,) = self._read("vectors", row)
        shape = (int(self.sizes[row]), self.key.block_dimension)
        return np.frombuffer(vectors, np.float16).reshape(shape)

    def _read(self, columns: str, row: int) -> tuple[Any, ...]:
        statement = f"SELECT {columns} FROM texts WHERE number = ?"  # noqa: S608
        return self._file.read_rows(statement, int(row))[0]  # int: it may be of NumPy


class BlockArchiveWriter:
    """Appends texts to an archive: one writer at a time, and any number of readers.

    Attributes:
        row_of: the row of each committed text, by its hash.
    """

    def __init__(self, directory: Path, key: ArchiveKey) -> None:
        """Open an archive for writing: a new one, or one to continue."""
        directory.mkdir(parents=True, exist_ok=True)
        kind = _ARCHIVE.beginning_with("archive", json.dumps(asdict(key)))
        self._key = key
        self._file = SQLiteConnections(directory / ARCHIVE_FILE, read_only=False, kind=kind)
        finalize(self, self._file.close)
        require_same(directory, read_key(self._file), key)
        self.row_of = dict(self._file.read_rows("SELECT hash, number FROM texts"))

    def append(self, texts: Mapping[str, SentenceBlocks], vectors: Sequence[Float32]) -> None:
        """Commit texts of 1 to `max_blocks` blocks by their hashes; all of them or none.

        Args:
            texts: none of them in `row_of`.
            vectors: block vectors [S, H] of each.
        """
        numbers = range(len(self.row_of), len(self.row_of) + len(texts))
        each = zip(numbers, texts.items(), vectors, strict=True)
        rows = [(number, *self._row(*text, of_text)) for number, text, of_text in each]
        with self._file.writing() as connection:
            connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self.row_of |= zip(texts, numbers, strict=True)

    def _row(
        self, text_hash: str, text: SentenceBlocks, vectors: Float32
    ) -> tuple[str, int, int, bytes, bytes, bytes]:
        expected = (len(text.blocks), self._key.block_dimension)
        if vectors.shape != expected:
            raise ArchiveError(f"block vectors of shape {vectors.shape}, not {expected}")
        lengths = np.array([len(block) for block in text.blocks], dtype=np.uint16)
        token_ids = np.concatenate([np.asarray(b, self._key.token_type) for b in text.blocks])
        parts = (lengths.tobytes(), token_ids.tobytes(), vectors.astype(np.float16).tobytes())
        return text_hash, text.receipt.tokens, len(text.blocks), *parts

"""A corpus as sentence blocks and block vectors: encoded once, for training and evaluation.

The directory is a block archive (`evaluation.block_archive`) of the distinct texts, and

texts.jsonl   SHA-256 and number of tokens of each text, in the order of the archive
ids.json      the documents of the corpus at the last complete run, and their texts

A text that was encoded before is not encoded again, even under another id.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from encoder.alignment.space import (
    MIN_DOCUMENTS,
    MIN_SAMPLE,
    AlignedBlocks,
    AlignmentSpace,
    fit_space,
    join_aligned,
    open_space,
    sample_blocks,
)
from encoder.arrays import Float32, Int64
from encoder.atomic_files import write_atomically
from encoder.block_selection import open_selector
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder
from encoder.errors import EmptyTextError
from encoder.tokenizer import BlockTokenizer
from evaluation.block_archive import (
    KEY,
    ArchiveKey,
    BlockArchive,
    BlockArchiveWriter,
    archive_key,
    read_block_archive,
    read_key,
)
from index.build import group
from index.corpus.reader import count_documents, read_corpus
from index.document import Document, SkippedInput
from index.embed import EmbeddedCorpus
from index.errors import CorpusError
from index.progress import Progress

IDS = "ids.json"
_TEXTS = "texts.jsonl"
_LOCK = "writer.lock"
_DOCUMENTS_PER_CALL = 256  # of the document level


@dataclass(frozen=True, slots=True)
class EncodedCorpus:
    """The documents of a corpus and their rows in the archive.

    Attributes:
        ids: N document ids, in the order of the corpus.
        rows: Int64[N], the row of each document in the archive; equal texts share one.
        hashes: N SHA-256 of the texts, in hex.
        tokens: Int64[N], number of tokens of each document, including those not read.
        archive: blocks and block vectors.
        skipped: number of pieces of input that the last run skipped.
    """

    ids: tuple[str, ...]
    rows: Int64
    hashes: tuple[str, ...]
    tokens: Int64
    archive: BlockArchive
    skipped: int


def encode_corpus(
    corpus: Path,
    directory: Path,
    encoder: Encoder,
    progress: Progress,
    max_blocks: int | None = None,
) -> EncodedCorpus:
    """Encode what is new in a corpus; after a kill at any moment, the next run resumes.

    Args:
        corpus: of any format of `index.corpus.reader`.
        directory: created if it is missing.
        encoder: provides sentence level and tokenizer.
        progress: notified of progress and skipped input.
        max_blocks: sentence blocks to read of a document, which may be more than the document
            level reads; by default as many.
    """
    key = archive_key(encoder.checkpoint, precision=encoder.precision, max_blocks=max_blocks)
    return _encode_into(corpus, directory, _Source(encoder.checkpoint, encoder, key), progress)


def keep_blocks(
    corpus: Path,
    directory: Path,
    encoder: Encoder,
    progress: Progress,
) -> EncodedCorpus:
    """Open the block vectors of a corpus in a directory, after encoding what is missing."""
    return encode_corpus(corpus, directory, encoder, progress, _kept_blocks(directory))


def keep_tokens(
    corpus: Path, directory: Path, checkpoint: Checkpoint, progress: Progress
) -> EncodedCorpus:
    """Open the sentence blocks of a corpus in a directory, after reading what is missing.

    Block vectors are zeros that take no memory, and the checkpoint needs no graph.
    """
    key = archive_key(checkpoint, max_blocks=_kept_blocks(directory), tokens_only=True)
    kept = _encode_into(corpus, directory, _Source(checkpoint, None, key), progress)
    return replace(kept, archive=kept.archive.without_vectors(checkpoint.block_dimension))


def _kept_blocks(directory: Path) -> int | None:
    """Return how many blocks of a document an archive holds, which may be more than are read."""
    return read_key(directory).max_blocks if (directory / KEY).exists() else None


def read_encoded_corpus(directory: Path, key: ArchiveKey | None = None) -> EncodedCorpus:
    """Open what `encode_corpus` wrote.

    Raises:
        CorpusError: the corpus was not encoded completely.
    """
    archive = read_block_archive(directory, key)
    path = directory / IDS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = np.array(content["rows"], dtype=np.int64)
        texts = _read_texts(directory / _TEXTS, len(archive))
        return EncodedCorpus(
            ids=tuple(content["ids"]),
            rows=rows,
            hashes=tuple(texts[row].hash for row in rows.tolist()),
            tokens=np.array([texts[row].tokens for row in rows.tolist()], dtype=np.int64),
            archive=archive,
            skipped=int(content["skipped"]),
        )
    except FileNotFoundError as error:
        raise CorpusError(
            f"{directory}: the corpus was not encoded completely: run the same command again"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CorpusError(f"{path}: not understood: {error}") from error


@dataclass(frozen=True, slots=True)
class _Source:
    """What blocks and block vectors are made with; without an encoder, blocks alone."""

    checkpoint: Checkpoint
    encoder: Encoder | None
    key: ArchiveKey


def _encode_into(
    corpus: Path, directory: Path, source: _Source, progress: Progress
) -> EncodedCorpus:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(directory / _LOCK, timeout=0):
            _encode(corpus, directory, source, progress)
    except Timeout as error:
        raise CorpusError(f"{directory}: another process is encoding into it") from error
    return read_encoded_corpus(directory, source.key)


@dataclass(frozen=True, slots=True)
class _Text:
    hash: str
    tokens: int


class _TextArchive:
    """The archive with the hashes of its texts, open for appending."""

    def __init__(self, directory: Path, source: _Source) -> None:
        self._writer = BlockArchiveWriter(directory, source.key)
        self._path = directory / _TEXTS
        self._encoder = source.encoder
        self._tokenizer = BlockTokenizer(
            replace(source.checkpoint, max_blocks=source.key.max_blocks)
        )
        texts = _read_texts(self._path, len(self._writer))
        self.row_of = {text.hash: row for row, text in enumerate(texts)}
        _write_texts(self._path, texts)  # removes what a killed run left

    def add(self, documents: Mapping[str, Document], progress: Progress) -> None:
        """Encode and commit documents of new text hashes, skipping those without a token."""
        texts: list[_Text] = []
        blocks: list[SentenceBlocks] = []
        for text_hash, document in documents.items():
            try:
                blocks.append(self._tokenizer(document.text))
            except EmptyTextError as error:
                progress.skipped(SkippedInput(f"document {document.id}", str(error)))
            else:
                texts.append(_Text(text_hash, blocks[-1].receipt.tokens))
        if self._encoder is None:
            vectors = [np.empty((len(block.blocks), 0), np.float32) for block in blocks]
        else:
            vectors = self._encoder.encode_block_vectors(blocks)
        _write_texts(self._path, texts, append=True)  # before the commit, which makes them count
        self._writer.append(blocks, vectors)
        for text in texts:
            self.row_of[text.hash] = len(self.row_of)
        tokens = sum(document.receipt.tokens_read for document in blocks)
        progress.advanced(len(documents), tokens=tokens)


def _encode(corpus: Path, directory: Path, source: _Source, progress: Progress) -> None:
    what = "encoding" if source.encoder else "reading"
    progress.started(what, count_documents(corpus))
    archive = _TextArchive(directory, source)
    ids: list[str] = []
    rows: list[int] = []
    skipped = 0
    for documents, lost in group(read_corpus(corpus), progress):
        hashes = [document.content_hash.hex() for document in documents]
        new = {h: d for h, d in zip(hashes, documents, strict=True) if h not in archive.row_of}
        progress.advanced(lost + len(documents) - len(new))
        archive.add(new, progress)
        for document, text_hash in zip(documents, hashes, strict=True):
            if text_hash in archive.row_of:
                ids.append(document.id)
                rows.append(archive.row_of[text_hash])
        skipped += lost + sum(text_hash not in archive.row_of for text_hash in hashes)
    if not ids:
        raise CorpusError(f"{corpus}: has no document that can be read")
    write_atomically(directory / IDS, json.dumps({"ids": ids, "rows": rows, "skipped": skipped}))


def _read_texts(path: Path, number: int) -> list[_Text]:
    """Read the first `number` texts; the archive has committed no more."""
    try:
        lines = path.read_bytes().split(b"\n")[:number] if path.exists() else []
        texts = [_Text(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise CorpusError(f"{path}: not understood: {error}") from error
    if len(texts) < number:
        raise CorpusError(f"{path}: has {len(texts)} of {number} texts: it is damaged")
    return texts


def _write_texts(path: Path, texts: Sequence[_Text], *, append: bool = False) -> None:
    lines = "".join(json.dumps(asdict(text)) + "\n" for text in texts)
    if not append:
        write_atomically(path, lines)
        return
    with path.open("ab") as file:
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def embed_encoded_corpus(
    encoded: EncodedCorpus, encoder: Encoder, space: AlignmentSpace | None = None
) -> EmbeddedCorpus:
    """Run the document level over the stored blocks of every document of a corpus, and align them.

    Block vectors are stored in half precision: the vectors differ from served ones by about 1e-4.

    Args:
        encoded: by the sentence level of the same checkpoint.
        encoder: reads at most `max_blocks` of the stored blocks of a document, and of these the
            reading share of its checkpoint.
        space: to align blocks in; fitted to the corpus, as a store does, when not given.
    """
    archive = encoded.archive
    limit = encoder.checkpoint.max_blocks
    vectors: list[Float32] = []
    read: list[int] = []
    aligned: list[AlignedBlocks] = []
    rows = encoded.rows.tolist()
    selected = _select_blocks(encoded, encoder.checkpoint)
    space = space or _fit_space(encoded, encoder.checkpoint, selected)
    for start in range(0, len(rows), _DOCUMENTS_PER_CALL):
        part = slice(start, start + _DOCUMENTS_PER_CALL)
        blocks = [archive.blocks(row)[:limit] for row in rows[part]]
        kept = [
            archive.vectors(row)[chosen][:limit].astype(np.float32)
            for row, chosen in zip(rows[part], selected[part], strict=True)
        ]
        vectors.append(encoder.encode_documents(blocks, kept))
        aligned += map(space.project, kept)
        read += [sum(map(len, block)) for block in blocks]
    return EmbeddedCorpus(
        ids=encoded.ids,
        vectors=np.concatenate(vectors),
        tokens=encoded.tokens,
        tokens_read=np.array(read, dtype=np.int64),
        skipped=encoded.skipped,
        aligned=join_aligned(space, aligned),
    )


_Selection = Sequence[list[int] | slice]


def _select_blocks(encoded: EncodedCorpus, checkpoint: Checkpoint) -> _Selection:
    """Return which of the stored blocks of each document the reading share leaves."""
    select, limit = open_selector(checkpoint), checkpoint.max_blocks
    if select is None:
        return [slice(None)] * len(encoded.rows)
    return [list(select(encoded.archive.blocks(row)[:limit])) for row in encoded.rows.tolist()]


def _fit_space(
    encoded: EncodedCorpus, checkpoint: Checkpoint, selected: _Selection
) -> AlignmentSpace:
    """Fit a space to a corpus; of one that is too small, use that of the checkpoint."""
    archive = encoded.archive
    stored = zip(encoded.rows.tolist(), selected, strict=True)
    rows = [archive.vectors(row)[chosen] for row, chosen in stored]
    sample = sample_blocks(rows) if len(rows) >= MIN_DOCUMENTS else None
    small = sample is None or len(sample) < MIN_SAMPLE
    return open_space(checkpoint) if sample is None or small else fit_space(sample)

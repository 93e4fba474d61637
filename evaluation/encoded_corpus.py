"""A corpus as sentence blocks and block vectors: encoded once, for training and evaluation.

The directory is a block archive (`evaluation.block_archive`) of the distinct texts. A text that was
encoded before is not encoded again, even under another id.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from encoder.alignment.space import (
    MIN_DOCUMENTS,
    SAMPLE_DOCUMENTS,
    AlignedBlocks,
    AlignmentSpace,
    at_equal_distances,
    fit_to_blocks,
    open_space,
)
from encoder.arrays import Float32, Int64
from encoder.block_selection import open_selector
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder
from encoder.errors import EmptyTextError
from encoder.tokenizer import BlockTokenizer
from evaluation.block_archive import (
    ArchiveKey,
    BlockArchive,
    BlockArchiveWriter,
    archive_key,
    read_block_archive,
)
from index.build import group
from index.corpus.reader import count_documents, read_corpus
from index.document import Document, SkippedInput
from index.embed import EmbeddedCorpus
from index.errors import CorpusError
from index.progress import Progress

_LOCK = "writer.lock"
_DOCUMENTS_PER_CALL = 256  # of the document level


@dataclass(frozen=True, slots=True)
class EncodedCorpus:
    """The documents of a corpus and their rows in the archive.

    Attributes:
        ids: N document ids, in the order of the corpus.
        rows: Int64[N], the row of each document in the archive; equal texts share one.
        hashes: N SHA-256 of the texts, in hex.
        archive: blocks and block vectors.
        skipped: number of pieces of input that the last run skipped.
    """

    ids: tuple[str, ...]
    rows: Int64
    hashes: tuple[str, ...]
    archive: BlockArchive
    skipped: int

    @property
    def tokens(self) -> Int64:
        """Number of tokens of each document, including those not read, Int64[N]."""
        tokens: Int64 = self.archive.tokens[self.rows]
        return tokens

    @property
    def sizes(self) -> Int64:
        """Number of blocks of each document, Int64[N]."""
        sizes: Int64 = self.archive.sizes[self.rows]
        return sizes

    def vectors(self) -> Iterator[Float32]:
        """Yield the block vectors [S, H] of each document."""
        for row in self.rows.tolist():
            yield self.archive.vectors(row).astype(np.float32)

    def select(self, ids: Sequence[str]) -> "EncodedCorpus":
        """Return the documents of these ids, in their order.

        Raises:
            CorpusError: a document was not encoded; names it.
        """
        place_of = {document_id: place for place, document_id in enumerate(self.ids)}
        missing = [document_id for document_id in ids if document_id not in place_of]
        if missing:
            raise CorpusError(
                f"{len(missing)} documents have no blocks, the first of them {missing[0]!r}: "
                "was this corpus encoded in this folder?"
            )
        places = [place_of[document_id] for document_id in ids]
        hashes = tuple(self.hashes[place] for place in places)
        return replace(self, ids=tuple(ids), rows=self.rows[places], hashes=hashes)


def keep_blocks(
    corpus: Path, directory: Path, encoder: Encoder, progress: Progress
) -> EncodedCorpus:
    """Encode what is new in a corpus; after a kill at any moment, the next run resumes.

    Args:
        corpus: of any format of `index.corpus.reader`.
        directory: created if it is missing.
        encoder: provides sentence level and tokenizer.
        progress: notified of progress and skipped input.
    """
    key = archive_key(encoder.checkpoint, precision=encoder.precision)
    return _keep(corpus, directory, key, encoder.checkpoint, encoder, progress)


def keep_tokens(
    corpus: Path, directory: Path, checkpoint: Checkpoint, progress: Progress
) -> EncodedCorpus:
    """Open the sentence blocks of a corpus in a directory, after reading what is missing.

    Block vectors are zeros that take no memory, and the checkpoint needs no graph.
    """
    key = archive_key(checkpoint, tokens_only=True)
    kept = _keep(corpus, directory, key, checkpoint, None, progress)
    return replace(kept, archive=kept.archive.without_vectors(checkpoint.block_dimension))


def _keep(
    corpus: Path,
    directory: Path,
    key: ArchiveKey,
    checkpoint: Checkpoint,
    encoder: Encoder | None,
    progress: Progress,
) -> EncodedCorpus:
    """Read what is missing; without an encoder, blocks alone."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = BlockTokenizer(checkpoint)
    kept: dict[str, str] = {}
    number = 0
    try:
        with FileLock(directory / _LOCK, timeout=0):
            writer = BlockArchiveWriter(directory, key)
            progress.started("encoding" if encoder else "reading", count_documents(corpus))
            for documents, lost in group(read_corpus(corpus), progress):
                hashes = {document.id: document.content_hash.hex() for document in documents}
                new = {hashes[d.id]: d for d in documents if hashes[d.id] not in writer.row_of}
                progress.advanced(lost + len(documents) - len(new))
                texts = _read(new, tokenizer, progress)
                writer.append(texts, _block_vectors(list(texts.values()), encoder))
                tokens = sum(text.receipt.tokens_read for text in texts.values())
                progress.advanced(len(new), tokens=tokens)
                kept |= {name: of for name, of in hashes.items() if of in writer.row_of}
                number += lost + len(documents)
    except Timeout as error:
        raise CorpusError(f"{directory}: another process is encoding into it") from error
    if not kept:
        raise CorpusError(f"{corpus}: has no document that can be read")
    return EncodedCorpus(
        ids=tuple(kept),
        rows=np.array([writer.row_of[text_hash] for text_hash in kept.values()], dtype=np.int64),
        hashes=tuple(kept.values()),
        archive=read_block_archive(directory, key),
        skipped=number - len(kept),
    )


def _read(
    documents: Mapping[str, Document], tokenizer: BlockTokenizer, progress: Progress
) -> dict[str, SentenceBlocks]:
    """Return the blocks of documents by the hashes of their texts, but of those without a token."""
    texts = {}
    for text_hash, document in documents.items():
        try:
            texts[text_hash] = tokenizer(document.text)
        except EmptyTextError as error:
            progress.skipped(SkippedInput(f"document {document.id}", str(error)))
    return texts


def _block_vectors(texts: Sequence[SentenceBlocks], encoder: Encoder | None) -> list[Float32]:
    if encoder is None:
        return [np.empty((len(text.blocks), 0), np.float32) for text in texts]
    return list(encoder.encode_block_vectors(texts))


def embed_encoded_corpus(
    encoded: EncodedCorpus, encoder: Encoder, space: AlignmentSpace | None = None
) -> EmbeddedCorpus:
    """Run the document level over the stored blocks of every document of a corpus, and align them.

    Vectors are as documents are compared by them: whitened, where the space does so. Block vectors
    are stored in half precision: the vectors differ from served ones by about 1e-4.

    Args:
        encoded: by the sentence level of the same checkpoint.
        encoder: reads the reading share of its checkpoint of the stored blocks of a document.
        space: to compare in; fitted to the corpus, as a store does, when not given.
    """
    archive = encoded.archive
    vectors: list[Float32] = []
    read: list[int] = []
    aligned: list[AlignedBlocks] = []
    rows = encoded.rows.tolist()
    selected = _select_blocks(encoded, encoder.checkpoint)
    space = space or _fit_space(encoded, encoder.checkpoint, selected)
    for start in range(0, len(rows), _DOCUMENTS_PER_CALL):
        part = slice(start, start + _DOCUMENTS_PER_CALL)
        blocks = [archive.blocks(row) for row in rows[part]]
        kept = [
            archive.vectors(row)[chosen].astype(np.float32)
            for row, chosen in zip(rows[part], selected[part], strict=True)
        ]
        vectors.append(encoder.encode_documents(blocks, kept))
        aligned += map(space.project, kept)
        read += [sum(map(len, block)) for block in blocks]
    return EmbeddedCorpus(
        ids=encoded.ids,
        vectors=space.whiten(np.concatenate(vectors)),
        tokens=encoded.tokens,
        tokens_read=np.array(read, dtype=np.int64),
        skipped=encoded.skipped,
        aligned=aligned,
        space=space,
    )


_Selection = Sequence[list[int] | slice]


def _select_blocks(encoded: EncodedCorpus, checkpoint: Checkpoint) -> _Selection:
    """Return which of the stored blocks of each document the reading share leaves."""
    select = open_selector(checkpoint)
    if select is None:
        return [slice(None)] * len(encoded.rows)
    return [list(select(encoded.archive.blocks(row))) for row in encoded.rows.tolist()]


def _fit_space(
    encoded: EncodedCorpus, checkpoint: Checkpoint, selected: _Selection
) -> AlignmentSpace:
    """Fit a space to a corpus; of one that is too small, use that of the checkpoint."""
    rows = encoded.rows.tolist()
    fitted = None
    if len(rows) >= MIN_DOCUMENTS:
        chosen = at_equal_distances(len(rows), SAMPLE_DOCUMENTS).tolist()
        blocks = [encoded.archive.vectors(rows[n])[selected[n]] for n in chosen]
        fitted = fit_to_blocks(blocks, whitens=checkpoint.mean_of_blocks)
    return fitted or open_space(checkpoint)

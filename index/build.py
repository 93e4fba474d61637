"""The offline index job: read a corpus, encode what is new, publish a searchable snapshot.

The job can be killed at any moment and started again. Documents are committed with their vectors,
batch by batch, and the next run leaves out what the store already holds, recognised by the hash of
its content. The store as a whole belongs to one checkpoint fingerprint.

Reading and writing happen here; where batches are encoded is the caller's choice: by `encode_here`,
or by `index.distributed`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from encoder.blocks import SentenceBlocks
from encoder.encoder import Encoder
from encoder.errors import EmptyTextError
from encoder.onnx_encoder import usable_cores
from index.alignment.spaces import REFIT_DRIFT
from index.corpus.folder_files import FolderFiles, gone_remark
from index.corpus.reader import Corpus, Folder, count_documents, read_corpus
from index.directory.data_directory import DataDirectory
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.lexical.stored_texts import MAX_TITLE_DRIFT
from index.progress import Progress
from index.sqlite.block_vectors import block_vectors_of
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument

# A kill can cost one batch: some seconds of two cores.
BATCH_CHARACTERS = 400_000
BATCH_DOCUMENTS = 512
NO_DOCUMENT = "has no document"

T = TypeVar("T")
_Read = Callable[[], SentenceBlocks]  # raises EmptyTextError


@dataclass(slots=True)
class BuildReport:
    """What one run of the job did.

    Attributes:
        encoded: documents that were new or changed.
        unchanged: documents that the store already held.
        skipped: how many pieces of input were skipped and reported.
        tokens: tokens of the encoded documents.
        tokens_left_out: those of them beyond the checkpoint's `max_blocks`.
        gone: documents whose files are no longer in the folder.
    """

    encoded: int = 0
    unchanged: int = 0
    skipped: int = 0
    tokens: int = 0
    tokens_left_out: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit takes of a corpus.

    Attributes:
        new: the documents to encode; the store has the others.
        unchanged: how many documents the store has.
        skipped: how many pieces of input were not read as a document.
    """

    new: Sequence[Document]
    unchanged: int
    skipped: int


BatchEncoder = Callable[[Iterable[Batch], Progress], Iterator[tuple[Batch, list[EncodedDocument]]]]
"""Encodes the batches of a job, a bounded number of them at a time.

It yields each batch with its encoded documents, those to encode in their order. Documents without a
token are left out and reported. Documents count as done when they are yielded.
"""


def build_index(
    corpus: Corpus,
    data: DataDirectory,
    encode: BatchEncoder,
    progress: Progress,
    *,
    prune: bool = False,
) -> BuildReport:
    """Bring a data directory up to date with a corpus and publish a snapshot.

    Documents of the data directory that are not in the corpus stay, but with `prune` those whose
    files in the folder are gone. All of these are reported.

    Raises:
        ClusterError: documents are encoded elsewhere, and that failed.
        CorpusError: the corpus cannot be read at all, or has no document.
        StoreError: the store cannot be written; what was committed before stays.
        SnapshotError: all is stored, but the index could not be published.
    """
    progress.started("encoding", count_documents(corpus))
    files = FolderFiles(corpus, data.path, data.store, progress)
    gone = files.gone()
    moves = Moves(data.store, gone)
    report = BuildReport(gone=len(gone))
    batches = read_batches(read_corpus(corpus, files), data.store, progress, moves)
    for batch, results in encode(batches, progress):
        data.store.put(results)
        report.encoded += len(results)
        report.unchanged += batch.unchanged
        report.skipped += batch.skipped + len(batch.new) - len(results)
        for receipt in (result.receipt for result in results):
            report.tokens += receipt.tokens
            report.tokens_left_out += receipt.tokens - receipt.tokens_read
    report.unchanged += files.unchanged
    is_part = isinstance(corpus, Folder) and corpus.names is not None
    if report == BuildReport(gone=len(gone)) and not is_part:
        raise CorpusError(f"{corpus}: {NO_DOCUMENT}")
    for document_id in gone:
        new_id = moves.found.get(document_id)
        progress.skipped(gone_remark(document_id, new_id, removed=prune))
    if prune:
        data.store.delete(gone)
    files.remember()
    finish(data, progress)
    return report


def finish(data: DataDirectory, progress: Progress) -> None:
    """Derive what follows from all documents together, and publish.

    Raises:
        SnapshotError: the index could not be published.
        StoreError: the store cannot be read or written, or block vectors are damaged.
    """
    store = data.store
    if store.common_text.has_drifted():
        store.refresh_common_text(progress)
    # A pass over all texts is too expensive for a few documents: changes of earlier runs count.
    if (
        not store.searched_elsewhere
        and store.lexical.changes_since_title_refresh() > MAX_TITLE_DRIFT * len(store)
    ):
        store.lexical.refresh_titles(progress)
    store.alignment.refresh(progress, fit=store.alignment.drift() > REFIT_DRIFT)
    if store.finds_families and store.families.pending():  # put without it
        store.families.finish(progress)
    publish(data, progress)


class Moves:
    """Finds the documents whose files have another name now, and gives them their vectors.

    Attributes:
        found: the new id by the former one.
    """

    def __init__(self, store: DocumentStore, gone: Sequence[str]) -> None:
        self.found: dict[str, str] = {}
        self._store = store
        hashes = store.content_hashes(gone)
        self._former = {content_hash: document_id for document_id, content_hash in hashes.items()}

    def take(self, new: Sequence[Document]) -> list[Document]:
        """Store those of new documents that are known by another id; return the others."""
        ids = {d.id: self._former[d.content_hash] for d in new if d.content_hash in self._former}
        known = self._store.known([d for d in new if d.id in ids], ids)
        self._store.put(list(known.values()))
        self.found |= {ids[document_id]: document_id for document_id in known}
        return [document for document in new if document.id not in known]


def read_batches(
    corpus: Iterable[Document | SkippedInput],
    store: DocumentStore,
    progress: Progress,
    moves: Moves | None = None,
) -> Iterator[Batch]:
    """Take a corpus in batches, and update those documents of which the store has the text."""
    for documents, skipped in group(corpus, progress):
        new = update_unchanged(documents, store)
        new = moves.take(new) if moves else new
        progress.advanced(len(documents) + skipped - len(new))
        yield Batch(new, len(documents) - len(new), skipped)


def group(
    items: Iterable[Document | SkippedInput], progress: Progress
) -> Iterator[tuple[list[Document], int]]:
    """Group the documents of a corpus into batches that one commit takes; report what is skipped.

    Yields:
        Documents, and how many pieces of input among them were lost.
    """
    documents, characters, lost = list[Document](), 0, 0
    for item in items:
        if isinstance(item, SkippedInput):
            progress.skipped(item)
            lost += item.lost
        else:
            documents.append(item)
            characters += len(item.text)
        if characters >= BATCH_CHARACTERS or len(documents) + lost >= BATCH_DOCUMENTS:
            yield documents, lost
            documents, characters, lost = [], 0, 0
    if documents or lost:
        yield documents, lost


def encode_here(encoder: Encoder) -> BatchEncoder:
    """Return what encodes batches in this process, one after the other.

    While a GPU encodes a batch, the threads of this process tokenise the next one.
    """

    def encode(
        batches: Iterable[Batch], progress: Progress
    ) -> Iterator[tuple[Batch, list[EncodedDocument]]]:
        if not encoder.batch_tokens:
            for batch in batches:
                yield batch, encode_documents(batch.new, encoder, progress)
            return
        with ThreadPoolExecutor(usable_cores()) as pool:

            def begin(batch: Batch) -> list[_Read]:
                return [pool.submit(encoder.read, document.text).result for document in batch.new]

            for batch, tokenised in _one_ahead((batch, begin(batch)) for batch in batches):
                yield batch, _encode(batch.new, tokenised, encoder, progress)

    return encode


def encode_documents(
    documents: Sequence[Document], encoder: Encoder, progress: Progress
) -> list[EncodedDocument]:
    """Encode documents with all threads; documents without a token are skipped and reported."""
    tokenised = [partial(encoder.read, document.text) for document in documents]
    return _encode(documents, tokenised, encoder, progress)


def _one_ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield each item once the next one has been made, or could not be."""
    waiting: list[T] = []
    try:
        for item in items:
            waiting.append(item)
            if len(waiting) > 1:
                yield waiting.pop(0)
    except Exception:  # what was read before the failure is encoded and stored
        yield from waiting
        raise
    yield from waiting


def _encode(
    documents: Sequence[Document],
    tokenised: Sequence[_Read],
    encoder: Encoder,
    progress: Progress,
) -> list[EncodedDocument]:
    """Encode documents, each with what returns its sentence blocks."""
    readable: list[Document] = []
    blocks: list[SentenceBlocks] = []
    for document, read in zip(documents, tokenised, strict=True):
        try:
            blocks.append(read())
        except EmptyTextError as error:
            progress.skipped(SkippedInput(f"document {document.id}", str(error)))
        else:
            readable.append(document)
    encoded = encoder.encode(blocks)
    tokens = sum(b.receipt.tokens_encoded for b in blocks)
    progress.advanced(len(documents), tokens=tokens)
    return [
        EncodedDocument(document, vector, b.receipt, block_vectors_of(b, rows))
        for document, b, vector, rows in zip(
            readable, blocks, encoded.document_vectors, encoded.block_vectors, strict=True
        )
    ]


def publish(data: DataDirectory, progress: Progress) -> None:
    """Bring the copies that are searched up to the store and publish them.

    An index that was outgrown, or is in another space than the store, is trained again.

    Raises:
        SnapshotError: it could not be published.
        StoreError: the store cannot be read.
    """
    before = data.engine.position
    data.engine.catch_up()
    if data.store.searched_elsewhere:
        return
    index = data.index
    drift = index.measure_drift()
    if drift.outgrown or drift.moved:
        progress.started("training the index", None)
        index.rebuild()
    elif index.sequence != before or index.manifest.generation == 0:
        progress.started("publishing the index", None)
        index.publish()
    if data.store.lexical.unpublished():
        progress.started("publishing the lexical index", None)
        data.store.lexical.publish()


def update_unchanged(batch: Sequence[Document], store: DocumentStore) -> list[Document]:
    """Store new titles and metadata of documents of unchanged text; return the other documents."""
    hashes = store.content_hashes([document.id for document in batch])
    new = [document for document in batch if hashes.get(document.id) != document.content_hash]
    known = [document for document in batch if hashes.get(document.id) == document.content_hash]
    stored = store.find([document.id for document in known])
    redescribed = [d for d in known if _is_redescribed(d, stored[d.id].document)]
    store.put(list(store.known(redescribed).values()))
    return new


def _is_redescribed(document: Document, stored: Document) -> bool:
    return (document.title, document.metadata) != (stored.title, stored.metadata)

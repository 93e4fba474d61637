"""Move a data directory to another checkpoint; the old vectors serve until all new ones exist.

    .reencoding/    the new data directory, made from the texts of the old one; a killed job
                    resumes there, and recognises what is done by the hash of each text

A server may be running while documents are encoded. During the swap no other process may have the
directory open; changes made in the meantime are encoded first.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from encoder.adapter import VectorSpace
from encoder.alignment.checkpoint_space import open_space
from encoder.checkpoint import Checkpoint
from encoder.errors import AdapterError
from encoder.onnx_encoder import OnnxEncoder
from encoder.selection.block_selection import open_document_tokenizer
from encoder.selection.reading_share import split_fingerprint
from encoder.tokenizer import BlockTokenizer
from index.adapt import adapt_data_directory, read_corpus_adapter
from index.build import encode_documents, publish, refit_alignment, update_unchanged
from index.directory.content_swap import ARRIVING, swap_in
from index.directory.data_directory import (
    ADAPTER_FILE,
    CONTENT,
    LOCK_FILE,
    STORE_FILE,
    DataDirectory,
    locked,
    open_data_directory,
    settle,
)
from index.directory.file_digest import verify_digest
from index.document import Document
from index.errors import DataDirectoryInUseError, StoreError
from index.progress import Progress
from index.store.document_store import SQLiteDocumentStore
from index.store.records import EncodedDocument
from index.store.schema import read_space

REENCODING = ".reencoding"
_CORPUS = "corpus.jsonl"
_DOCUMENTS_A_BATCH = 128


@dataclass(frozen=True, slots=True)
class _Job:
    """What encodes, and where progress is reported."""

    tokenizer: BlockTokenizer
    encoder: OnnxEncoder
    progress: Progress


def reencode(data: Path, checkpoint: Checkpoint, precision: str | None, progress: Progress) -> int:
    """Encode all documents with another checkpoint and put the result in place; resumable.

    A corpus adapter is fitted again, to the stored texts. The calibration of the corpus is
    dropped, because it belongs to the old vectors.

    Returns:
        How many documents there are.

    Raises:
        DataDirectoryInUseError: all documents are encoded, but a server that has the directory
            open must be stopped before the swap.
        EncoderError: the checkpoint cannot encode.
        StoreError: there is no data directory, its vectors are of this checkpoint already, it is
            damaged, a document has no token for this checkpoint, or the disk is full.
    """
    settle(data)
    verify_digest(data / STORE_FILE)
    space = read_space(data / STORE_FILE)
    _require_another(data, space, checkpoint)
    beside = data / REENCODING
    with closing(_open(data, space)) as old:
        if (data / ADAPTER_FILE).exists():
            _adapt(old, beside, checkpoint, progress)
        job = _open_job(beside, checkpoint, precision, progress)
        _follow(old, beside, job)
    try:
        with locked(data):
            with closing(_open(data, space)) as old:
                documents = _follow(old, beside, job)
            _swap_in(data, beside)
    except DataDirectoryInUseError as error:
        raise DataDirectoryInUseError(
            f"{data}: every document is encoded, and the old vectors still serve: stop the server "
            "that has it open, give the same command again, and start it with the new checkpoint"
        ) from error
    return documents


def _require_another(data: Path, space: VectorSpace, checkpoint: Checkpoint) -> None:
    base, share = split_fingerprint(space.fingerprint)
    same = base == checkpoint.fingerprint or (
        (data / ADAPTER_FILE).exists() and _fits(data, checkpoint)
    )
    if same and share == checkpoint.reading_share:
        raise StoreError(
            f"{data}: its vectors are of checkpoint {checkpoint.name} "
            f"({checkpoint.fingerprint[:12]}) already: nothing to do"
        )


def _fits(data: Path, checkpoint: Checkpoint) -> bool:
    try:
        return read_corpus_adapter(data, checkpoint) is not None
    except AdapterError:
        return False


def _open(data: Path, space: VectorSpace) -> SQLiteDocumentStore:
    return SQLiteDocumentStore(
        data / STORE_FILE,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        read_only=True,
    )


def _adapt(
    old: SQLiteDocumentStore, beside: Path, checkpoint: Checkpoint, progress: Progress
) -> None:
    """Fit an adapter to the stored texts, unless that was done before."""
    if (beside / ADAPTER_FILE).exists() and _fits(beside, checkpoint):
        return
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    corpus = beside / _CORPUS
    with corpus.open("w", encoding="utf-8") as file:
        for batch in _batches(old):
            for document in batch:
                file.write(json.dumps({"id": document.id, "text": document.text}) + "\n")
    adapt_data_directory(corpus, beside, checkpoint, BlockTokenizer(checkpoint), progress)
    corpus.unlink()


def _open_job(
    beside: Path, checkpoint: Checkpoint, precision: str | None, progress: Progress
) -> _Job:
    adapter = read_corpus_adapter(beside, checkpoint)
    encoder = OnnxEncoder(checkpoint, precision=precision, adapter=adapter)
    encoder.warm_up()
    store = beside / STORE_FILE
    if store.exists() and read_space(store).fingerprint != encoder.fingerprint:
        shutil.rmtree(beside)  # left by a job for a third checkpoint
    return _Job(open_document_tokenizer(checkpoint), encoder, progress)


def _follow(old: SQLiteDocumentStore, beside: Path, job: _Job) -> int:
    """Bring the new directory to the documents of the old one; return how many there are."""
    encoder = job.encoder
    with closing(
        open_data_directory(
            beside,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            alignment=open_space(encoder.checkpoint),
        )
    ) as new:
        job.progress.started("encoding", len(old))
        present: set[str] = set()
        for batch in _batches(old):
            present.update(document.id for document in batch)
            _encode(batch, new, job)
        new.store.delete(sorted(_ids(new.store) - present))
        refit_alignment(new.store, job.progress)
        publish(new, job.progress)
        return len(new.store)


def _encode(batch: list[Document], new: DataDirectory, job: _Job) -> None:
    changed = update_unchanged(batch, new.store)
    job.progress.advanced(len(batch) - len(changed))
    results = encode_documents(changed, job.tokenizer, job.encoder, job.progress)
    if lost := {one.id for one in changed} - {one.document.id for one in results}:
        raise StoreError(
            f"document {min(lost)!r} has no token that this checkpoint reads: delete it first"
        )
    new.store.put([EncodedDocument(r.document, r.vector, r.receipt, r.blocks) for r in results])


def _batches(store: SQLiteDocumentStore) -> Iterator[list[Document]]:
    vector_ids = store.changes_since(0).added.tolist()
    for start in range(0, len(vector_ids), _DOCUMENTS_A_BATCH):
        some = store.get(vector_ids[start : start + _DOCUMENTS_A_BATCH])
        found = store.find([summary.id for summary in some.values()])
        yield [one.document for one in found.values()]


def _ids(store: SQLiteDocumentStore) -> set[str]:
    return {one.id for one in store.get(store.changes_since(0).added.tolist()).values()}


def _swap_in(data: Path, beside: Path) -> None:
    (beside / LOCK_FILE).unlink(missing_ok=True)
    shutil.rmtree(data / ARRIVING, ignore_errors=True)
    beside.replace(data / ARRIVING)
    swap_in(data, CONTENT)

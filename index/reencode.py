"""Move a data directory to another checkpoint; the old vectors serve until all new ones exist.

    .reencoding/        the new data directory, made from the texts of the old one; a killed job
                        resumes there, and recognises what is done by the hash of each text
    .reencoding-lock    held by the process that encodes

A server may be running while documents are encoded. During the swap no other process may have the
directory open; changes made in the meantime are encoded first.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from encoder.alignment.space import open_space
from encoder.checkpoint import Checkpoint, split_fingerprint
from encoder.encoder import Encoder
from encoder.opening import open_encoder
from index.build import BATCH_CHARACTERS, encode_here, finish, read_batches
from index.directory.data_directory import (
    SHADOW_TEST_FILE,
    STORE_FILE,
    holding,
    locked,
    open_data_directory,
    remember_encoder,
    settle,
    swap_in,
)
from index.document import Document
from index.errors import DataDirectoryInUseError, StoreError
from index.progress import Progress
from index.store.document_store import DocumentStore
from index.store.records import BEFORE_ALL
from index.store.schema import LOCK_FILE, read_space

REENCODING = ".reencoding"
_LOCK = ".reencoding-lock"


@dataclass(frozen=True, slots=True)
class Reencoded:
    """A data directory whose documents are encoded with another checkpoint, in a folder of it.

    Attributes:
        data: the data directory.
        content: the new content.
        encoder: the new one.
        progress: where progress is reported.
    """

    data: Path
    content: Path
    encoder: Encoder
    progress: Progress


@contextmanager
def only_reencoding(data: Path) -> Iterator[None]:
    """Let no other process encode the documents of a data directory again during a block.

    Raises:
        DataDirectoryInUseError: one does.
        StoreError: the directory cannot be written.
    """
    busy = "another `longmatch reencode` is at work: wait for it or end it"
    with holding(data, _LOCK, busy):
        yield


def reencode_documents(
    data: Path, checkpoint: Checkpoint, precision: str | None, progress: Progress
) -> Reencoded:
    """Encode all documents with another checkpoint, while the old vectors serve; resumable.

    To be called inside of `only_reencoding`, as what follows it is.

    Args:
        data: the data directory.
        checkpoint: the new one, with the reading share to use.
        precision: of its graphs; None for the best one of the device.
        progress: is notified.

    Raises:
        DataDirectoryInUseError: a swap of its content is unfinished, and it is in use.
        EncoderError: the checkpoint cannot encode.
        StoreError: there is no data directory, its vectors are of this checkpoint already, it is
            damaged, a document has no token for this checkpoint, or the disk is full.
    """
    require_another(data, checkpoint)
    content = data / REENCODING
    (content / SHADOW_TEST_FILE).unlink(missing_ok=True)
    with closing(DocumentStore(data / STORE_FILE, read_only=True)) as old:
        encoder = _open_encoder(content, checkpoint, precision)
        made = Reencoded(data, content, encoder, progress)
        _follow(old, made)
    return made


def put_in_place(made: Reencoded) -> int:
    """Let the new content replace the old one, after what has changed since was encoded.

    The calibration and the fitted fusion of the old vectors are dropped.

    Returns:
        How many documents there are.

    Raises:
        DataDirectoryInUseError: a server that has the directory open must be stopped first.
        EncoderError, StoreError: as of `reencode_documents`.
    """
    try:
        with locked(made.data):
            with closing(DocumentStore(made.data / STORE_FILE, read_only=True)) as old:
                documents = _follow(old, made)
            (made.content / LOCK_FILE).unlink(missing_ok=True)
            swap_in(made.data, REENCODING)
    except DataDirectoryInUseError as error:
        raise DataDirectoryInUseError(
            f"{made.data}: every document is encoded, and the old vectors still serve: stop the "
            "server that has it open, give the same command again, and start it with the new "
            "checkpoint"
        ) from error
    return documents


def require_another(data: Path, checkpoint: Checkpoint) -> None:
    """Check that the vectors of a data directory are of another checkpoint than the new one.

    Raises:
        DataDirectoryInUseError: a swap of its content is unfinished, and it is in use.
        StoreError: its vectors are of this checkpoint already, or it is damaged.
    """
    settle(data)
    made_with = split_fingerprint(read_space(data / STORE_FILE).fingerprint)
    if made_with == (checkpoint.fingerprint, checkpoint.reading_share):
        raise StoreError(
            f"{data}: its vectors are of checkpoint {checkpoint.name} "
            f"({checkpoint.fingerprint[:12]}) already: nothing to do"
        )


def _open_encoder(content: Path, checkpoint: Checkpoint, precision: str | None) -> Encoder:
    encoder = open_encoder(checkpoint, precision=precision)
    encoder.warm_up()
    store = content / STORE_FILE
    if content.exists() and (
        not store.exists() or read_space(store).fingerprint != encoder.fingerprint
    ):
        shutil.rmtree(content)  # half of it was deleted, or it is of a third checkpoint
    return encoder


def _follow(old: DocumentStore, made: Reencoded) -> int:
    """Bring the new directory to the documents of the old one; return how many there are."""
    encoder = made.encoder
    with closing(
        open_data_directory(
            made.content,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            alignment=open_space(encoder.checkpoint),
        )
    ) as new:
        remember_encoder(made.content, encoder.checkpoint)
        made.progress.started("encoding", len(old))
        gone = _ids(new.store)
        batches = read_batches(_documents(old, gone), new.store, made.progress)
        for batch, results in encode_here(encoder)(batches, made.progress):
            if len(results) < len(batch.new):
                lost = {document.id for document in batch.new} - {r.document.id for r in results}
                raise StoreError(
                    f"document {min(lost)!r} has no token that this checkpoint reads: "
                    "delete it first"
                )
            new.store.put(results)
        new.store.delete(sorted(gone))
        finish(new, made.progress)
        return len(new.store)


def _documents(store: DocumentStore, others: set[str]) -> Iterator[Document]:
    """Yield the documents of a store, and take their ids from others."""
    last = BEFORE_ALL
    while documents := store.whole(last, BATCH_CHARACTERS):
        others.difference_update(document.id for document in documents)
        yield from documents
        last = documents[-1].id


def _ids(store: DocumentStore) -> set[str]:
    return {summary.id for summary in store.get(store.log.added_after(0)[1].tolist()).values()}

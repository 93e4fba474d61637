"""Examine a data directory and its checkpoint: what is wrong, and what helps.

It only reads, so a server may be running. What cannot be trusted after some damage is not examined:
rows of a broken database, vectors of a store of another checkpoint.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from encoder.adapter import Adapter, VectorSpace, vector_space
from encoder.checkpoint import Checkpoint, read_verified
from encoder.errors import EncoderError
from index.adapt import read_corpus_adapter
from index.directory.data_directory import (
    ADAPTER_FILE,
    CALIBRATION_FILE,
    FOLLOWER_FILES,
    FUSION_FILE,
    SNAPSHOTS_DIRECTORY,
    STORE_FILE,
    with_share_of,
)
from index.doctor.findings import Finding, Remedy, require_damage
from index.doctor.store_checks import (
    examine_derived,
    examine_truth,
    follower_problem,
    problem_of,
)
from index.errors import FingerprintMismatchError, SnapshotError, StoreError
from index.lexical.lexical_index import LEXICAL_DIRECTORY
from index.lexical.segment_files import load_snapshot
from index.search.corpus_calibration import read_corpus_calibration
from index.search.fusion import read_corpus_fusion
from index.sqlite.connections import DATABASE_ERRORS
from index.store.document_store import SQLiteDocumentStore
from index.vectors.snapshot import current_precision, read_current_snapshot
from index.vectors.vector_index import DEFAULT_PRECISION


def examine(data: Path, checkpoint: Checkpoint) -> tuple[Finding, ...]:
    """Examine a data directory with the checkpoint of its vectors.

    Raises:
        StorageError: a file cannot be read for another reason than damage.
        StoreError: there is no data directory.
    """
    if not (data / STORE_FILE).is_file():
        raise StoreError(f"{data}: there is no data directory here")
    return tuple(_examine(data, share_if_readable(data, checkpoint)))


def share_if_readable(data: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the reading share of a data directory, if the store can be read."""
    try:
        return with_share_of(data, checkpoint)
    except (EncoderError, StoreError):  # what is wrong is found by the examination
        return checkpoint


def _examine(data: Path, checkpoint: Checkpoint) -> Iterator[Finding]:
    yield from examine_checkpoint(checkpoint)
    try:
        adapter = read_corpus_adapter(data, checkpoint)
    except EncoderError as error:
        require_damage(data / ADAPTER_FILE, error)
        yield Finding(ADAPTER_FILE, str(error), Remedy.RESTORE_BACKUP)
        return
    yield from _examine_calibration(data, checkpoint, adapter)
    yield from _examine_store(data, vector_space(checkpoint, adapter))


def _examine_copies(data: Path, store: SQLiteDocumentStore) -> Iterator[Finding]:
    """Check the files of followers, and the published copies of the vectors and of the words."""
    for name in FOLLOWER_FILES:
        file = data / name
        if file.exists() and (problem := problem_of(file, follower_problem)):
            yield Finding(name, problem, Remedy.DELETE)
    for folder, read in (
        (data / SNAPSHOTS_DIRECTORY, lambda folder: read_snapshot(folder, store)),
        (data / LEXICAL_DIRECTORY, load_snapshot),
    ):
        try:
            if folder.exists():  # it may be deleted at any time
                read(folder)
        except SnapshotError as error:
            require_damage(folder, error)
            yield Finding(folder.name, str(error), Remedy.DELETE)


def read_snapshot(root: Path, store: SQLiteDocumentStore) -> None:
    """Read the current generation of the index of a store.

    Raises:
        SnapshotError: it is damaged, or of another store or time.
    """
    precision = current_precision(root) or DEFAULT_PRECISION
    manifest, _ = read_current_snapshot(
        root, precision, fingerprint=store.fingerprint, dimension=store.dimension
    )
    if manifest.sequence > store.sequence:
        raise SnapshotError(
            f"the index holds change {manifest.sequence} of the store, which ends at "
            f"{store.sequence}: the store has lost changes or is another one"
        )
    if manifest.sequence < store.log.start:
        raise SnapshotError("the index is older than the changes that the store remembers")


def examine_checkpoint(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Compare every file of a checkpoint with its manifest."""
    for name in checkpoint.files:
        try:
            read_verified(checkpoint.directory, checkpoint.files, name)
        except EncoderError as error:
            require_damage(checkpoint.directory / name, error)
            yield Finding(f"checkpoint {checkpoint.name}", str(error), Remedy.REINSTALL)


def _examine_calibration(
    data: Path, checkpoint: Checkpoint, adapter: Adapter | None
) -> Iterator[Finding]:
    fingerprint = vector_space(checkpoint, adapter).fingerprint
    for name, read in (
        (FUSION_FILE, read_corpus_fusion),
        (CALIBRATION_FILE, read_corpus_calibration),
    ):
        try:
            read(data, fingerprint)
        except StoreError as error:
            require_damage(data / name, error)
            yield Finding(name, str(error), Remedy.DELETE)


def _examine_store(data: Path, space: VectorSpace) -> Iterator[Finding]:
    path = data / STORE_FILE
    try:
        found = list(examine_truth(path))
        yield from found
        if any(not finding.remedy.repairable for finding in found):
            return
        with closing(
            SQLiteDocumentStore(
                path, fingerprint=space.fingerprint, dimension=space.dimension, read_only=True
            )
        ) as store:
            if not found:  # what follows from damaged rows is rebuilt with them
                yield from examine_derived(path)
                yield from _examine_copies(data, store)
    except DATABASE_ERRORS as error:
        require_damage(path, error)
        yield Finding(STORE_FILE, f"the database is damaged: {error}", Remedy.RESTORE_BACKUP)
    except FingerprintMismatchError as error:
        problem = f"its vectors are of checkpoint {error.found[:12]}, not {error.expected[:12]}"
        yield Finding(
            STORE_FILE, f"{problem}: name that one with --checkpoint, or", Remedy.RESTORE_BACKUP
        )
    except StoreError as error:
        require_damage(path, error)
        yield Finding(STORE_FILE, str(error), Remedy.RESTORE_BACKUP)

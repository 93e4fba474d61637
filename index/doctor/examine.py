"""Examine a data directory and its checkpoint: what is wrong, and what helps.

It only reads, so a server may be running. What cannot be trusted after some damage is not examined:
rows of a broken database, vectors of a store of another checkpoint.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.adapter import Adapter, VectorSpace, vector_space
from encoder.arrays import Float32, Int64
from encoder.block_selection import open_document_tokenizer
from encoder.checkpoint import Checkpoint, read_verified
from encoder.errors import EmptyTextError, EncoderError
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
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
from index.directory.file_digest import DIGEST_FILE, verify_digest
from index.doctor.findings import Finding, Remedy, require_damage
from index.doctor.store_checks import (
    examine_database,
    examine_follower,
    examine_metadata,
    examine_rows,
    examine_spaces,
    examine_words,
)
from index.errors import FingerprintMismatchError, SnapshotError, StoreError
from index.lexical.lexical_index import LEXICAL_DIRECTORY
from index.lexical.segment_files import load_snapshot
from index.progress import Progress
from index.search.corpus_calibration import read_corpus_calibration
from index.search.fusion import read_corpus_fusion
from index.sqlite.connections import DATABASE_ERRORS
from index.store.document_store import SQLiteDocumentStore
from index.vectors.faiss.faiss_index import FaissIndex
from index.vectors.snapshot import current_precision, read_current_snapshot
from index.vectors.vector_index import DEFAULT_PRECISION

SAMPLE = 16  # documents to encode, which takes some seconds


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to compare vectors with the checkpoint.

    Attributes:
        documents: how many to encode for comparison.
        precision: of the graphs; None for the best one for the device.
        progress: is notified.
    """

    documents: int
    precision: str | None
    progress: Progress


def examine(data: Path, checkpoint: Checkpoint, sampling: Sampling) -> tuple[Finding, ...]:
    """Examine a data directory with the checkpoint of its vectors.

    Args:
        data: the directory.
        checkpoint: of its vectors.
        sampling: how to compare vectors.

    Raises:
        StorageError: a file cannot be read for another reason than damage.
        StoreError: there is no data directory.
    """
    if not (data / STORE_FILE).is_file():
        raise StoreError(f"{data}: there is no data directory here")
    return tuple(_examine(data, share_if_readable(data, checkpoint), sampling))


def share_if_readable(data: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the reading share of a data directory, if the store can be read."""
    try:
        return with_share_of(data, checkpoint)
    except (EncoderError, StoreError):  # what is wrong is found by the examination
        return checkpoint


def _examine(data: Path, checkpoint: Checkpoint, sampling: Sampling) -> Iterator[Finding]:
    broken = list(examine_checkpoint(checkpoint))
    yield from broken
    try:
        adapter = read_corpus_adapter(data, checkpoint)
    except EncoderError as error:
        require_damage(data / ADAPTER_FILE, error)
        yield Finding(ADAPTER_FILE, str(error), Remedy.RESTORE_BACKUP)
        return
    yield from _examine_calibration(data, checkpoint, adapter)
    space = vector_space(checkpoint, adapter)
    found = list(_examine_store(data, space))
    yield from found
    if any(
        finding.what == STORE_FILE and finding.remedy != Remedy.REBUILD_CHECKSUMS
        for finding in found
    ):
        return  # comparing other data with the store would repeat the same finding
    with closing(_open_store(data, space)) as store:
        yield from examine_index(data / SNAPSHOTS_DIRECTORY, store)
        yield from _examine_lexical_copy(data / LEXICAL_DIRECTORY)
        for name in FOLLOWER_FILES:
            yield from examine_follower(data / name)
        if not broken and sampling.documents:
            encoder = OnnxEncoder(checkpoint, precision=sampling.precision, adapter=adapter)
            tokenizer = open_document_tokenizer(checkpoint)
            yield from _examine_vectors(
                store, tokenizer, encoder, sampling.documents, sampling.progress
            )


def _examine_lexical_copy(directory: Path) -> Iterator[Finding]:
    if directory.exists():
        try:
            load_snapshot(directory)
        except SnapshotError as error:
            require_damage(directory, error)
            yield Finding(directory.name, str(error), Remedy.PUBLISH_LEXICAL_INDEX)


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
    try:
        read_corpus_fusion(data, fingerprint)
    except StoreError as error:
        require_damage(data / FUSION_FILE, error)
        yield Finding(FUSION_FILE, str(error), Remedy.DELETE)
    try:
        read_corpus_calibration(data, fingerprint)
    except StoreError as error:
        require_damage(data / CALIBRATION_FILE, error)
        yield Finding(CALIBRATION_FILE, str(error), Remedy.DELETE)


def _examine_store(data: Path, space: VectorSpace) -> Iterator[Finding]:
    path = data / STORE_FILE
    try:
        broken = list(examine_database(path))
        yield from broken
        try:
            verify_digest(path)
        except StoreError as error:
            require_damage(path, error)
            problem = "the file has changed since it was closed"
            yield Finding(DIGEST_FILE, problem, Remedy.WRITE_DIGEST)
        if any(finding.remedy == Remedy.RESTORE_BACKUP for finding in broken):
            return
        _open_store(data, space).close()
        yield from examine_rows(path, space.dimension)
        yield from examine_words(path)
        yield from examine_metadata(path)
        yield from examine_spaces(path)
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


def _open_store(data: Path, space: VectorSpace) -> SQLiteDocumentStore:
    return SQLiteDocumentStore(
        data / STORE_FILE,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        read_only=True,
    )


# Precisions and machines round differently: int8 keeps 0.99 of fp32, see quality.json.
LEAST_COSINE = 0.97
LEAST_ROUNDED_COSINE = 0.99  # of a vector with itself as int8, of which rounding takes 0.0001
SAMPLE_SEED = 1


def _examine_vectors(
    store: SQLiteDocumentStore,
    tokenizer: BlockTokenizer,
    encoder: OnnxEncoder,
    sample: int,
    progress: Progress,
) -> Iterator[Finding]:
    """Encode `sample` documents, chosen at random, and compare with the stored vectors.

    Raises:
        StoreError: the store cannot be read.
    """
    ids = store.changes_since(0).added
    if len(ids) > sample:
        ids = np.sort(np.random.default_rng(SAMPLE_SEED).choice(ids, sample, replace=False))
    progress.started("encoding a sample", len(ids))
    names = {vector_id: summary.id for vector_id, summary in store.get(ids.tolist()).items()}
    vectors = dict(zip(*store.vectors(ids), strict=True))
    wrong = []
    for vector_id in ids.tolist():
        stored = store.find([names[vector_id]]) if vector_id in names else {}
        for document in stored.values():
            try:
                blocks = tokenizer(document.document.text)
            except EmptyTextError:
                continue
            again = encoder.encode([blocks]).document_vectors[0]
            if vector_id in vectors and float(again @ vectors[vector_id]) < LEAST_COSINE:
                wrong.append(vector_id)
            progress.advanced(1, tokens=blocks.receipt.tokens_encoded)
    if wrong:
        problem = (
            f"{len(wrong)} of {len(ids)} encoded documents have another vector, vector id "
            f"{wrong[0]} for one"
        )
        yield Finding("vectors", problem, Remedy.ENCODE, tuple(wrong))


_VECTORS_A_READ = 1_024


def examine_index(root: Path, store: SQLiteDocumentStore) -> Iterator[Finding]:
    """Compare the current generation with the store, id by id and vector by vector.

    Exactly where the index holds vectors in fp32, otherwise by their cosine.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        manifest, index = read_current_snapshot(
            root,
            current_precision(root) or DEFAULT_PRECISION,
            fingerprint=store.fingerprint,
            dimension=store.dimension,
        )
        if manifest.sequence > store.sequence:
            raise SnapshotError(
                f"the index holds change {manifest.sequence} of the store, which ends at "
                f"{store.sequence}: the store has lost changes or is another one"
            )
        if manifest.sequence < store.log.start:
            raise SnapshotError("it is older than the changes that the store remembers")
    except SnapshotError as error:
        require_damage(root, error)
        yield Finding("index", str(error), Remedy.REBUILD_INDEX)
        return
    since = store.changes_since(manifest.sequence)
    present = store.changes_since(0).added
    expected = np.setdiff1d(present, since.added)
    held = np.setdiff1d(index.ids(), since.removed)
    yield from _compared_ids(held, expected)
    both = np.intersect1d(held, expected)
    wrong = 0
    for start in range(0, len(both), _VECTORS_A_READ):
        ids, vectors = store.vectors(both[start : start + _VECTORS_A_READ])
        wrong += _count_different(index, ids, vectors)
    if wrong:
        yield Finding("index", f"{wrong} vectors differ from the store", Remedy.REBUILD_INDEX)


def _count_different(index: FaissIndex, ids: Int64, vectors: Float32) -> int:
    """Count the ids Int64[N] under which an index holds other vectors than Float32[N, D]."""
    held = index.vectors(ids)
    if index.exact:
        return int(np.any(held != vectors, axis=1).sum())
    lengths = np.linalg.norm(held, axis=1) * np.linalg.norm(vectors, axis=1)
    return int((np.einsum("nd,nd->n", held, vectors) < LEAST_ROUNDED_COSINE * lengths).sum())


def _compared_ids(held: Int64, expected: Int64) -> Iterator[Finding]:
    missing, superfluous = np.setdiff1d(expected, held), np.setdiff1d(held, expected)
    if len(missing):
        problem = f"{len(missing)} documents are missing, vector id {missing[0]} for one"
        yield Finding("index", problem, Remedy.REBUILD_INDEX)
    if len(superfluous):
        problem = f"{len(superfluous)} documents are not in the store"
        yield Finding("index", problem, Remedy.REBUILD_INDEX)

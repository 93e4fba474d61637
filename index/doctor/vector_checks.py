"""Examine the vectors: against the encoder, and the index against the document store."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.errors import EmptyTextError
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.doctor.findings import Finding, Remedy, require_damage
from index.errors import SnapshotError
from index.progress import Progress
from index.store.document_store import SQLiteDocumentStore
from index.vectors.faiss.faiss_index import FaissIndex
from index.vectors.snapshot import current_precision, read_current_snapshot
from index.vectors.vector_index import DEFAULT_PRECISION

# Precisions and machines round differently: int8 keeps 0.99 of fp32, see quality.json.
LEAST_COSINE = 0.97
LEAST_ROUNDED_COSINE = 0.99  # of a vector with itself as int8, of which rounding takes 0.0001
SAMPLE_SEED = 1


def examine_vectors(
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

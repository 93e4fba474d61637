"""Examines the vectors: encodes some documents again and compares."""

from collections.abc import Iterator

import numpy as np

from encoder.errors import EmptyTextError
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.findings import Finding
from index.observer import Observer
from index.sqlite_store import SQLiteDocumentStore

# Another precision or machine gives other roundings: int8 keeps 0.99 of fp32, see quality.json.
LEAST_COSINE = 0.97
SAMPLE_SEED = 1


def examine_vectors(
    store: SQLiteDocumentStore,
    tokenizer: BlockTokenizer,
    encoder: OnnxEncoder,
    sample: int,
    observer: Observer,
) -> Iterator[Finding]:
    """Encode `sample` documents, drawn at random, and compare with the vectors that are stored.

    Raises:
        StoreError: the store cannot be read.
    """
    ids = store.changes_since(0).added
    if len(ids) > sample:
        ids = np.sort(np.random.default_rng(SAMPLE_SEED).choice(ids, sample, replace=False))
    observer.started("encoding a sample", len(ids))
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
            observer.advanced(documents=1, tokens=blocks.receipt.tokens_read)
    if wrong:
        problem = (
            f"{len(wrong)} of {len(ids)} documents that were encoded again have another vector, "
            f"vector id {wrong[0]} for one"
        )
        yield Finding("vectors", problem, "encode again", tuple(wrong))

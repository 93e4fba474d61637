"""What the tests of searches share: documents whose vectors are directions in a plane."""

from collections.abc import Callable, Mapping

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory
from index.document import Document
from index.engine.port import EncodedQuery
from index.search.calibrate import Scoring
from index.search.rank import search, select_documents
from index.search.records import Examples, Hit, Mode, SearchAnswer, SearchOptions
from index.search.score import LinearFusion
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument

RULE = LinearFusion(0.5, 0.25, 0.4, expected_slope=0.5, expected_intercept=0.2)
MODES: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")


def direction(degrees: float) -> Float32:
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def entry(
    name: str,
    text: str,
    vector: Float32,
    blocks: BlockVectors | None = None,
    metadata: Mapping[str, object] | None = None,
) -> EncodedDocument:
    document = Document(name, text, "", dict(metadata or {}))
    return EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1), blocks)


def put(
    data: DataDirectory, documents: Mapping[str, tuple[str, float]], **metadata: object
) -> None:
    """Put documents: text and degrees by id."""
    entries = [
        entry(name, text, direction(degrees), metadata=metadata)
        for name, (text, degrees) in documents.items()
    ]
    data.index.apply(data.store.put(entries))


def stored_query(data: DataDirectory, name: str, vector: Float32) -> EncodedQuery:
    """Return a stored document as a query."""
    stored = data.store.find([name])[name]
    return EncodedQuery(stored.document.text, vector, vector_id=stored.vector_id)


def answer(
    data: DataDirectory,
    query: EncodedQuery | Examples,
    options: SearchOptions,
    rule: LinearFusion = RULE,
    between: Callable[[], object] = lambda: None,
) -> SearchAnswer:
    """Search without calibrations; `between` is called after the documents were selected."""
    among = select_documents(data, options)
    between()
    return search(data, query, options, scoring=Scoring(rule), among=among)


def names(hits: tuple[Hit, ...]) -> list[str]:
    return [hit.id for hit in hits]

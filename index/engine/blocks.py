"""The blocks of a query, aligned with those of stored documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.alignment.scoring import align
from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32
from index.alignment.alignment_index import AlignableDocuments
from index.engine.query import EncodedQuery
from index.sqlite.block_vectors import as_stored
from index.store.document_store import DocumentStore
from index.vectors.vector_index import NO_VECTOR


@dataclass(slots=True)
class QueryBlocks:
    """The blocks of one query.

    Attributes:
        store: that has the documents.
        read: the aligned blocks of documents, as `AlignmentIndex.read`.
        query: what to search for.
        blocks: of it; None until the first documents are aligned.
        space: that the blocks are in.
    """

    store: DocumentStore
    read: Callable[[Sequence[int]], AlignableDocuments | None]
    query: EncodedQuery
    blocks: AlignedBlocks | None = None
    space: AlignmentSpace | None = None

    def align(self, wanted: Sequence[int]) -> Float32 | None:
        """Return alignment scores [N] of vector ids; NaN without blocks, None if there are none.

        That is so if there is no space, the query has no blocks, or the documents have moved to
        another space since the first ones.
        """
        query = self.query
        stored = self.blocks is None and query.blocks is None and query.vector_id != NO_VECTOR
        documents = self.read([*wanted, query.vector_id] if stored else wanted)
        if documents is None:
            return None
        if self.blocks is None:
            ours = documents.blocks.get(query.vector_id) if stored else None
            self.blocks = ours or self._project(documents)
            self.space = documents.space
        if self.blocks is None or documents.space is not self.space:
            return None
        rows = [row for row, vector_id in enumerate(wanted) if vector_id in documents.blocks]
        scores = np.full(len(wanted), np.nan, dtype=np.float32)
        scores[rows] = align(self.blocks, [documents.blocks[wanted[row]] for row in rows])
        return scores

    def _project(self, documents: AlignableDocuments) -> AlignedBlocks | None:
        # As they would be stored, so that a stored document scores the same by its text.
        query = self.query
        blocks = None if query.blocks is None else as_stored(query.blocks)
        offsets = query.offsets
        if blocks is None:
            found = self.store.block_vectors([query.vector_id])
            stored = found.get(query.vector_id)
            if stored is None:
                return None
            blocks, offsets = stored.vectors, stored.offsets
        return documents.project(query.text, blocks, offsets)

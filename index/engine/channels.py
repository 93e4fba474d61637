"""The channels of the local engine: how each finds candidates of a query, and scores documents.

Another channel is a class like these, in a file of its own, and an entry of `CHANNELS`. The blocks
of a query find nothing, and are aligned with those of the best candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, cast

import numpy as np

from encoder.alignment.scoring import align
from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Int64
from index.alignment.alignment_index import AlignableDocuments, AlignmentIndex, SpaceInUse
from index.engine.port import VECTOR, WORDS, EncodedQuery, SearchStage
from index.id_set import IdSet
from index.lexical.hashed_words import HashedWords
from index.lexical.lexical_index import CANDIDATES, LexicalIndex
from index.lexical.scoring import LexicalQuery
from index.lexical.segment import QueryReads
from index.sqlite.block_vectors import as_stored
from index.store.document_store import DocumentStore
from index.vectors.live_index import LiveIndex
from index.vectors.vector_index import NO_VECTOR


@dataclass(frozen=True, slots=True)
class Found:
    """What one channel finds.

    Attributes:
        vector_ids: Int64[N], each once.
        scores: Float32[N]; None where they are still to be computed.
        exhausted: the channel would find no more.
    """

    vector_ids: Int64
    scores: Float32 | None = None
    exhausted: bool = False


class Channel(Protocol):
    """One kind of score, for one query.

    Attributes:
        stage: what its time is reported as.
        weight: in hybrid mode, where the rule does not know the channel; see `Candidates.weights`.
    """

    stage: ClassVar[SearchStage]
    weight: ClassVar[float]

    @property
    def silent(self) -> bool:
        """Whether the query has nothing for this channel."""
        ...

    def find(self, k: int, among: IdSet | None, *, alone: bool) -> Found:
        """Find at least k documents if so many exist; `alone` if no other channel does."""
        ...

    def score(self, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]."""
        ...


class VectorChannel:
    """The cosine of the document vectors."""

    stage: ClassVar[SearchStage] = "search"
    weight: ClassVar[float] = 0.0
    silent = False

    def __init__(self, _: DocumentStore, index: LiveIndex, query: EncodedQuery) -> None:
        self._index, self._vector = index, query.vector

    def find(self, k: int, among: IdSet | None, *, alone: bool) -> Found:
        """Find the nearest vectors."""
        nearest = self._index.search(self._vector[np.newaxis], max(k, CANDIDATES), among=among)
        found = nearest.ids[0] != NO_VECTOR
        return Found(nearest.ids[0][found], nearest.scores[0][found], not found.all())

    def score(self, vector_ids: Int64) -> Float32:
        """Return cosines; NaN for documents that are not in the index."""
        return self._index.scores(self._vector, vector_ids)


class WordChannel:
    """The cosine of the words."""

    stage: ClassVar[SearchStage] = "lexical"
    weight: ClassVar[float] = 0.0

    def __init__(self, store: DocumentStore, _: LiveIndex, query: EncodedQuery) -> None:
        self._store, self._query = store, query

    @cached_property
    def terms(self) -> LexicalQuery:
        """The terms of the query."""
        return read_terms(self._store.words, self._query)

    @cached_property
    def _reads(self) -> QueryReads:
        """The same, with what was read of the local index."""
        return QueryReads(self.terms)

    @property
    def silent(self) -> bool:
        """Whether no document has a word of the query that counts."""
        return not len(self.terms)

    def find(self, k: int, among: IdSet | None, *, alone: bool) -> Found:
        """Find candidates by the top terms; alone, only documents that share a word."""
        words = self._store.lexical
        if not alone:
            return Found(words.candidates(self._reads, max(k, CANDIDATES), among))
        best = words.search(self.terms, max(k, CANDIDATES), among=among, least=k)
        return Found(best.vector_ids, best.scores, len(best.vector_ids) < k)

    def score(self, vector_ids: Int64) -> Float32:
        """Return cosines; 0 for documents that are not there."""
        return self._store.lexical.score(self._reads, vector_ids)


def read_terms(words: LexicalIndex | HashedWords, query: EncodedQuery) -> LexicalQuery:
    """Return the terms of a query, which are stored where the query is."""
    if query.terms is not None:
        return query.terms
    if query.vector_id != NO_VECTOR:
        return words.read_stored(query.vector_id)
    return words.read(query.text, title=query.title)


Channels = Mapping[str, Callable[[DocumentStore, LiveIndex, EncodedQuery], Channel]]
CHANNELS: Channels = {VECTOR: VectorChannel, WORDS: WordChannel}


class BlockAlignment:
    """What aligns the blocks of a query with those of stored documents: a part of its search."""

    def __init__(self, store: DocumentStore, query: EncodedQuery) -> None:
        """Align a query; its blocks are read with those of the first documents."""
        self.store, self.query = store, query
        self._blocks: AlignedBlocks | None = None
        self._used: SpaceInUse | None = None  # when blocks were read first

    def read_blocks(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        """Return the blocks of documents; None if there is no space."""
        return cast(AlignmentIndex, self.store.alignment).read(vector_ids, self._used)

    def align(self, vector_ids: Int64) -> Float32 | None:
        """Return alignment scores Float32[N], NaN without blocks; None if nothing can be aligned.

        That is so if there is no space, the query has no blocks, or the documents have moved to
        another space since the first ones.
        """
        query, wanted = self.query, vector_ids.tolist()
        stored = self._blocks is None and query.blocks is None and query.vector_id != NO_VECTOR
        documents = self.read_blocks([*wanted, query.vector_id] if stored else wanted)
        if documents is None:
            return None
        if self._blocks is None:
            ours = documents.blocks.get(query.vector_id) if stored else None
            self._blocks = ours or self._project(documents)
            self._used = documents.used
        moved = self._used is None or documents.space is not self._used.space
        if self._blocks is None or moved:
            return None
        rows = [row for row, vector_id in enumerate(wanted) if vector_id in documents.blocks]
        scores = np.full(len(wanted), np.nan, dtype=np.float32)
        scores[rows] = align(self._blocks, [documents.blocks[wanted[row]] for row in rows])
        return scores

    def _project(self, documents: AlignableDocuments) -> AlignedBlocks | None:
        # As they would be stored, so that a stored document scores the same by its text.
        query, blocks = self.query, self.query.blocks
        if blocks is not None:
            return documents.project(query.text, as_stored(blocks.vectors), blocks.offsets)
        stored = self.store.block_vectors([query.vector_id]).get(query.vector_id)
        if stored is None:
            return None
        return documents.project(query.text, stored.vectors, stored.offsets)

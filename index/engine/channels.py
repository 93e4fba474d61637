"""The channels of the local engine: how each finds candidates of a query, and scores documents.

Another channel is a class like these, in a file of its own, and an entry of `CHANNELS`. The blocks
of a query find nothing, and are aligned with those of the best candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from encoder.alignment.scoring import align
from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32, Int64
from index.alignment.alignment_index import AlignableDocuments
from index.engine.port import VECTOR, WORDS, EncodedQuery, SearchStage
from index.id_set import IdSet
from index.lexical.lexical_index import CANDIDATES
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
    """One kind of score, for one query."""

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


@dataclass(slots=True)
class VectorChannel:
    """The cosine of the document vectors."""

    index: LiveIndex
    query: EncodedQuery
    silent: bool = False

    def find(self, k: int, among: IdSet | None, *, alone: bool) -> Found:
        """Find the nearest vectors."""
        nearest = self.index.search(self.query.vector[np.newaxis], max(k, CANDIDATES), among=among)
        found = nearest.ids[0] != NO_VECTOR
        return Found(nearest.ids[0][found], nearest.scores[0][found], not found.all())

    def score(self, vector_ids: Int64) -> Float32:
        """Return cosines; NaN for documents that are not in the index."""
        return self.index.scores(self.query.vector, vector_ids)


@dataclass(slots=True)
class WordChannel:
    """The cosine of the words."""

    store: DocumentStore
    query: EncodedQuery
    _terms: LexicalQuery | None = None
    _reads: QueryReads | None = None

    @property
    def terms(self) -> LexicalQuery:
        """The terms of the query, which are stored where the query is; read once."""
        if self._terms is None:
            query, words = self.query, self.store.words
            if query.terms is not None:
                self._terms = query.terms
            elif query.vector_id != NO_VECTOR:
                self._terms = words.read_stored(query.vector_id)
            else:
                self._terms = words.read(query.text, title=query.title)
        return self._terms

    @property
    def reads(self) -> QueryReads:
        """The same, with what was read of the local index."""
        self._reads = self._reads or QueryReads(self.terms)
        return self._reads

    @property
    def silent(self) -> bool:
        """Whether no document has a word of the query that counts."""
        return not len(self.terms)

    def find(self, k: int, among: IdSet | None, *, alone: bool) -> Found:
        """Find candidates by the top terms; alone, only documents that share a word."""
        words = self.store.lexical
        if not alone:
            return Found(words.candidates(self.reads, max(k, CANDIDATES), among))
        best = words.search(self.terms, max(k, CANDIDATES), among=among, least=k)
        return Found(best.vector_ids, best.scores, len(best.vector_ids) < k)

    def score(self, vector_ids: Int64) -> Float32:
        """Return cosines; 0 for documents that are not there."""
        return self.store.lexical.score(self.reads, vector_ids)


@dataclass(slots=True)
class QueryBlocks:
    """The blocks of a query, aligned with those of stored documents.

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
        query, blocks = self.query, self.query.blocks
        if blocks is not None:
            return documents.project(query.text, as_stored(blocks.vectors), blocks.offsets)
        stored = self.store.block_vectors([query.vector_id]).get(query.vector_id)
        if stored is None:
            return None
        return documents.project(query.text, stored.vectors, stored.offsets)


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """How the local engine makes a channel.

    Attributes:
        make: of the store, the index over its vectors, and a query.
        stage: what its time is reported as.
        weight: in hybrid mode, where the rule does not know the channel; see `Candidates.weights`.
    """

    make: Callable[[DocumentStore, LiveIndex, EncodedQuery], Channel]
    stage: SearchStage
    weight: float = 0.0


CHANNELS: Mapping[str, ChannelKind] = {
    VECTOR: ChannelKind(lambda _, index, query: VectorChannel(index, query), "search"),
    WORDS: ChannelKind(lambda store, _, query: WordChannel(store, query), "lexical"),
}

"""What searches a collection: it follows the document store, and finds candidates of a query.

A candidate has a raw score in each channel: the cosine of the document vectors, that of the words,
the alignment score of the blocks. How they become one score is not known here (`index.search`).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from encoder.arrays import Float32, Int64
from index.errors import IndexingError
from index.id_set import IdSet
from index.lexical.scoring import LexicalQuery, TermWeight
from index.sqlite.block_vectors import BlockVectors
from index.store.change_log import Changes
from index.store.filters import Filter
from index.vectors.vector_index import NO_VECTOR

VECTOR, WORDS, BLOCKS = "vector", "lexical", "alignment"  # the channels of the rule
SearchStage = Literal["filter", "lexical", "search", "align", "fetch"]
Seconds = dict[SearchStage, float]  # that the stages of a search have taken


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """The input of a search.

    Attributes:
        text: the whole text, whose words are read.
        vector: Float32[dimension] of unit norm, as the encoder gave it.
        title: of the text, if it has one.
        blocks: of the text, with their vectors; not needed of a stored document.
        vector_id: of a stored document, which is left out of its own matches.
        terms: of the text, if they were read before.
    """

    text: str
    vector: Float32
    title: str = ""
    blocks: BlockVectors | None = None
    vector_id: int = NO_VECTOR
    terms: LexicalQuery | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Documents with the raw scores that a query gives them.

    Attributes:
        vector_ids: Int64[N].
        scores: Float32[N] by channel; of `BLOCKS`, NaN for what was not aligned.
        silent: channels that the query has nothing for, such as a text without indexed words.
        weights: of the channels that the rule does not know, in hybrid mode, where the score of
            the rule has the rest of 1.
        exhausted: a wider search would find no more candidates.
        generation: of the engine's index that was searched.
        position: sequence of the store that the engine held.
    """

    vector_ids: Int64
    scores: Mapping[str, Float32]
    silent: frozenset[str] = frozenset()
    weights: Mapping[str, float] = field(default_factory=dict)
    exhausted: bool = False
    generation: int = 0
    position: int = 0

    def __len__(self) -> int:
        return len(self.vector_ids)

    def take(self, rows: Int64) -> "Candidates":
        """Return the candidates of these rows Int64[M], in this order."""
        scores = {channel: values[rows] for channel, values in self.scores.items()}
        return replace(self, vector_ids=self.vector_ids[rows], scores=scores)

    def with_channel(self, channel: str, scores: Float32) -> "Candidates":
        """Return the same candidates with other scores Float32[N] of a channel."""
        return replace(self, scores={**self.scores, channel: scores})

    def present(self) -> "Candidates":
        """Leave out the documents that the engine has no vector of, and bound the cosines."""
        found = self.take(np.flatnonzero(~np.isnan(self.scores[VECTOR])))
        return found.with_channel(VECTOR, bounded(found.scores[VECTOR]))


class QuerySearch(Protocol):
    """The searches for one query: what it needs to be read is read once."""

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Find the best documents of each of these channels, with their scores in all of them.

        Args:
            channels: that find candidates; the vector is compared in any case.
            k: how many documents are found at least, if so many exist.
            among: the documents to search; None for all.
        """
        ...

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        """Score documents Int64[N] in these channels; what the engine has not is left out."""
        ...

    def align(self, vector_ids: Int64) -> Float32 | None:
        """Return alignment scores Float32[N], NaN without blocks; None if nothing can be aligned.

        After None nothing more is aligned by this search.
        """
        ...

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return, of each document, the words that add most to its score in `WORDS`."""
        ...

    def common_share(self) -> float:
        """Return what share of the words of the query, which is stored, is common text."""
        ...


class Engine(Protocol):
    """The searchable copy of a document store."""

    @property
    def position(self) -> int:
        """The sequence of the store that it holds."""
        ...

    @property
    def generation(self) -> int:
        """The number of the index that is searched; 0 for none."""
        ...

    @property
    def failure(self) -> IndexingError | None:
        """Why it cannot be used, as far as is known; None if it can."""
        ...

    @property
    def exact(self) -> bool:
        """Whether cosines are those of the store's vectors; otherwise vectors are rounded."""
        ...

    def apply(self, change: Changes) -> None:
        """Bring the engine to `change` or beyond; at return searches find what it added."""
        ...

    def catch_up(self) -> None:
        """Bring the engine to the present state of the store."""
        ...

    def filters(self, where: Filter) -> bool:
        """Return whether a search that is opened with this filter finds what passes it alone."""
        ...

    def open(
        self, query: EncodedQuery, seconds: Seconds, where: Filter | None = None
    ) -> QuerySearch:
        """Begin the searches for a query.

        Args:
            query: what to search for.
            seconds: the time of each stage is added.
            where: a filter; what is searched `among` passes it where this engine does not filter.
        """
        ...


def bounded(cosines: Float32) -> Float32:
    """Undo rounding, which may carry a cosine past its bounds."""
    return np.clip(cosines, -1.0, 1.0).astype(np.float32)


@contextmanager
def timed(seconds: Seconds, stage: SearchStage) -> Iterator[None]:
    """Add the time that the block takes to a stage."""
    started = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started

"""The local engine: FAISS, words and blocks of this process, which follow the store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from encoder.arrays import Float32, Int64
from index.alignment.alignment_index import AlignmentIndex
from index.engine.channels import CHANNELS, Channel, ChannelKind, QueryBlocks, WordChannel
from index.engine.parallel_steps import PARALLEL_STEPS
from index.engine.port import VECTOR, WORDS, Candidates, EncodedQuery, Seconds, timed
from index.errors import IndexingError
from index.id_set import IdSet
from index.lexical.scoring import TermWeight
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.store.filters import Filter
from index.vectors.live_index import LiveIndex

_TERMS = 8  # of a document that are explained
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """An open store with its index and its followers."""

    store: DocumentStore
    index: LiveIndex
    channels: Mapping[str, ChannelKind] = field(default_factory=lambda: CHANNELS)
    failure: IndexingError | None = None

    @property
    def position(self) -> int:
        """The sequence of the store that it holds."""
        return self.index.sequence

    @property
    def generation(self) -> int:
        """The snapshot of the index last published or loaded; 0 for none."""
        return self.index.manifest.generation

    @property
    def exact(self) -> bool:
        """Whether cosines are those of the store's vectors; otherwise vectors are rounded."""
        return self.index.exact

    def apply(self, change: Changes) -> None:
        """Bring the index to a change; the store has brought its followers there."""
        self.index.apply(change)

    def catch_up(self) -> None:
        """Bring the index to the store; the followers are brought there by what writes."""
        self.index.catch_up()

    def rebuild(self) -> None:
        """Derive the index and the followers from the store again."""
        for follower in self.store.followers:
            follower.rebuild()
        self.index.rebuild()

    def filters(self, where: Filter) -> bool:
        """Return False: what passes a filter is read from the store."""
        return False

    def open(
        self, query: EncodedQuery, seconds: Seconds, where: Filter | None = None
    ) -> "LocalSearch":
        """Begin the searches for a query, in all that any server has stored before."""
        if self.store.shared and self.store.sequence != self.index.sequence:
            self.index.catch_up()
        made = {
            name: kind.make(self.store, self.index, query) for name, kind in self.channels.items()
        }
        blocks = QueryBlocks(self.store, self.store.alignment.read, query)
        return LocalSearch(self, query, made, seconds, blocks)


@dataclass(slots=True)
class LocalSearch:
    """The searches for one query, and what was read for it.

    Attributes:
        engine: that is searched.
        query: what to search for.
        channels: by name.
        seconds: time of each stage.
        blocks: of the query.
    """

    engine: LocalEngine
    query: EncodedQuery
    channels: Mapping[str, Channel]
    seconds: Seconds
    blocks: QueryBlocks

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Find the best documents of each of these channels, with their scores in all of them."""
        before = self._at()
        # Words first: reading them takes this thread, comparing vectors another one.
        names = self._extended(channels)[::-1]
        alone = len(names) == 1
        each = self._each(names, lambda name: self.channels[name].find(k, among, alone=alone))
        found = dict(zip(names, each, strict=True))
        parts = [part.vector_ids for part in found.values()]
        ids = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        scored = list(dict.fromkeys([*names, VECTOR]))

        def score(name: str) -> Float32:
            part = found.get(name)
            if part is None or part.scores is None:
                return self.channels[name].score(ids)
            if len(parts) == 1:
                return part.scores
            scores = np.full(len(ids), np.nan, dtype=np.float32)
            scores[np.searchsorted(ids, part.vector_ids)] = part.scores
            missing = np.isnan(scores)
            scores[missing] = self.channels[name].score(ids[missing])
            return scores

        scores = dict(zip(scored, self._each(scored, score), strict=True))
        exhausted = found[channels[0]].exhausted
        return self._candidates(ids, scores, exhausted=exhausted, at=before)

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        """Score documents Int64[N] in these channels; what the index has not is left out."""
        before = self._at()
        names = self._extended(channels)
        scores = self._each(names, lambda name: self.channels[name].score(vector_ids))
        found = dict(zip(names, scores, strict=True))
        return self._candidates(vector_ids, found, exhausted=False, at=before)

    def align(self, vector_ids: Int64) -> Float32 | None:
        """Return alignment scores Float32[N], NaN without blocks; None if nothing can be aligned.

        That is so if there is no space, the query has no blocks, or the documents have moved to
        another space since the first ones.
        """
        return self.blocks.align(vector_ids.tolist())

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return the words that add most to the score of each document."""
        words = self.channels[WORDS]
        if not isinstance(words, WordChannel):
            return {}
        with timed(self.seconds, "lexical"):
            return self.engine.store.lexical.explain(words.terms, vector_ids, _TERMS)

    def common_share(self) -> float:
        """Return what share of the words of the stored query is common text."""
        return cast(AlignmentIndex, self.engine.store.alignment).common_share(self.query.vector_id)

    def _extended(self, channels: Sequence[str]) -> list[str]:
        """Return channels with those of their own weight, which only hybrid mode has."""
        if len(channels) == 1:
            return list(channels)
        return [*channels, *(name for name, kind in self.engine.channels.items() if kind.weight)]

    def _each(self, names: Sequence[str], step: Callable[[str], T]) -> list[T]:
        """Return what a step returns for each channel; the last one is done by another core."""

        def measured(name: str) -> T:
            with timed(self.seconds, self.engine.channels[name].stage):
                return step(name)

        if len(names) == 1:
            return [measured(names[0])]
        *first, last = names
        most, rest = PARALLEL_STEPS.both(
            lambda: [measured(name) for name in first], lambda: measured(last)
        )
        return [*most, rest]

    def _at(self) -> tuple[int, int]:
        return self.engine.generation, self.engine.position

    def _candidates(
        self, ids: Int64, scores: Mapping[str, Float32], *, exhausted: bool, at: tuple[int, int]
    ) -> Candidates:
        kinds = self.engine.channels
        silent = frozenset(name for name in scores if self.channels[name].silent)
        weights = {name: kinds[name].weight for name in scores if kinds[name].weight}
        return Candidates(ids, scores, silent, weights, exhausted, *at).present()

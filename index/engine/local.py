"""The local engine: FAISS, words and blocks of this process, which follow the store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from encoder.arrays import Float32, Int64
from index.alignment.alignment_index import AlignmentIndex
from index.engine.channels import CHANNELS, BlockAlignment, Channels, WordChannel
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
    channels: Channels = field(default_factory=lambda: CHANNELS)
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

    def filters(self, where: Filter) -> bool:
        """Return False: what passes a filter is read from the store."""
        return False

    def open(
        self, query: EncodedQuery, seconds: Seconds, where: Filter | None = None
    ) -> "LocalSearch":
        """Begin the searches for a query, in all that any server has stored before."""
        if self.store.connections.shared and self.store.sequence != self.index.sequence:
            self.index.catch_up()
        return LocalSearch(self, query, seconds)


class LocalSearch(BlockAlignment):
    """The searches for one query, and what was read for it."""

    def __init__(self, engine: LocalEngine, query: EncodedQuery, seconds: Seconds) -> None:
        """Search an engine for a query; the time of each stage is added to seconds."""
        super().__init__(engine.store, query)
        self._index, self._seconds = engine.index, seconds
        self._channels = {
            name: make(engine.store, engine.index, query) for name, make in engine.channels.items()
        }

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Find the best documents of each of these channels, with their scores in all of them."""
        before = self._at()
        # Words first: reading them takes this thread, comparing vectors another one.
        names = self._extended(channels)[::-1]
        alone = len(names) == 1
        each = self._each(names, lambda name: self._channels[name].find(k, among, alone=alone))
        found = dict(zip(names, each, strict=True))
        ids = np.unique(np.concatenate([part.vector_ids for part in each]))
        scored = list(dict.fromkeys([*names, VECTOR]))

        def score(name: str) -> Float32:
            scores = np.full(len(ids), np.nan, dtype=np.float32)
            if name in found and (known := found[name].scores) is not None:
                scores[np.searchsorted(ids, found[name].vector_ids)] = known
            missing = np.isnan(scores)
            scores[missing] = self._channels[name].score(ids[missing])
            return scores

        scores = dict(zip(scored, self._each(scored, score), strict=True))
        exhausted = found[channels[0]].exhausted
        return self._candidates(ids, scores, exhausted=exhausted, at=before)

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        """Score documents Int64[N] in these channels; what the index has not is left out."""
        before = self._at()
        names = self._extended(channels)
        scores = self._each(names, lambda name: self._channels[name].score(vector_ids))
        found = dict(zip(names, scores, strict=True))
        return self._candidates(vector_ids, found, exhausted=False, at=before)

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return the words that add most to the score of each document."""
        with timed(self._seconds, "lexical"):
            terms = cast(WordChannel, self._channels[WORDS]).terms
            return self.store.lexical.explain(terms, vector_ids, _TERMS)

    def common_share(self) -> float:
        """Return what share of the words of the stored query is common text."""
        return cast(AlignmentIndex, self.store.alignment).common_share(self.query.vector_id)

    def _extended(self, channels: Sequence[str]) -> list[str]:
        """Return channels with those of their own weight, which only hybrid mode has."""
        if len(channels) == 1:
            return list(channels)
        return [*channels, *(name for name, channel in self._channels.items() if channel.weight)]

    def _each(self, names: Sequence[str], step: Callable[[str], T]) -> list[T]:
        """Return what a step returns for each channel; the last one is done by another core."""

        def measured(name: str) -> T:
            with timed(self._seconds, self._channels[name].stage):
                return step(name)

        if len(names) == 1:
            return [measured(names[0])]
        *first, last = names
        most, rest = PARALLEL_STEPS.both(
            lambda: [measured(name) for name in first], lambda: measured(last)
        )
        return [*most, rest]

    def _at(self) -> tuple[int, int]:
        return self._index.manifest.generation, self._index.sequence

    def _candidates(
        self, ids: Int64, scores: Mapping[str, Float32], *, exhausted: bool, at: tuple[int, int]
    ) -> Candidates:
        used = {name: self._channels[name] for name in scores}
        silent = frozenset(name for name, channel in used.items() if channel.silent)
        weights = {name: channel.weight for name, channel in used.items() if channel.weight}
        return Candidates(ids, scores, silent, weights, exhausted, *at).present()

"""What ranks the documents of a search: by one query, or by several examples together.

A search by examples finds the candidates of each example that is liked, and scores all of them with
every example. The score of a document is

    liked   = (mean over the liked of sqrt(max(0, score)))²
    score   = liked - UNLIKE_WEIGHT * max(0, highest score of an unliked - liked)

A mean of roots is nearer to the lowest score than a plain mean is: what matches all of the examples
a little comes before what matches one of them well. An unliked example changes nothing about
documents that match the liked ones better. `docs/results/search.md` has both measured.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from encoder.arrays import Float32, Int64
from index.engine.port import (
    BLOCKS,
    VECTOR,
    WORDS,
    Candidates,
    QuerySearch,
    Seconds,
    bounded,
    timed,
)
from index.id_set import IdSet
from index.lexical.scoring import TermWeight
from index.search.align import align_candidates
from index.search.records import AlignmentOptions, AlignmentReceipt, Examples, Mode, SearchOptions
from index.search.score import LinearFusion, Ranking, score_candidates, with_channel
from index.vectors.vector_index import NO_VECTOR

UNLIKE_WEIGHT = 0.25
_TERMS = 8  # of a hit
# The channels that find candidates in a mode. The first one says whether there are more.
_FOUND_BY: Mapping[Mode, tuple[str, ...]] = {
    "semantic": (VECTOR,),
    "lexical": (WORDS,),
    "hybrid": (VECTOR, WORDS),
}

ExampleScores = tuple[tuple[float, ...], tuple[float, ...]]
Explained = Mapping[int, tuple[TermWeight, ...]]


@dataclass(frozen=True, slots=True)
class Ranker:
    """Ranks by one query, or by examples; of a ranking by several, `parts` are those of each.

    Attributes:
        examples: what to search for.
        options: of the search.
        fusion: the rule.
        searches: of each example, those that are liked first.
        seconds: time of each stage.
        alone: the only example is the query.
    """

    examples: Examples
    options: SearchOptions
    fusion: LinearFusion
    searches: tuple[QuerySearch, ...]
    seconds: Seconds
    alone: bool

    @property
    def left_out(self) -> frozenset[int]:
        """Return the vector ids of the queries that are stored: they are no hits."""
        return frozenset(example.vector_id for example in self.examples.all) - {NO_VECTOR}

    def rank(self, k: int, among: IdSet | None) -> Ranking:
        """Rank at least k documents other than the queries, if so many exist; align the best."""
        mode, alignment = self.options.mode, self.options.alignment
        most = k + len(self.left_out) + 1
        liked = self.searches[: len(self.examples.like)]
        found = [self._others(search.search(_FOUND_BY[mode], most, among)) for search in liked]
        if self.alone:
            parts = [score_candidates(self.fusion, mode, found[0])]
        else:
            parts = self._score(
                np.unique(np.concatenate([candidates.vector_ids for candidates in found]))
            )
        exhausted = all(candidates.exhausted for candidates in found)
        ranking = self._join(parts, exhausted=exhausted)
        if alignment is None or mode == "lexical":
            return ranking
        with timed(self.seconds, "align"):
            return self._align(ranking, alignment, k)

    def rescored(self, ranking: Ranking, rows: Int64, cosines: Sequence[Float32]) -> Ranking:
        """Rank the same documents by the exact cosines Float32[M] of rows Int64[M] and examples."""
        parts = [
            _exactly(self.fusion, part, rows, exact)
            for part, exact in zip(ranking.parts or (ranking,), cosines, strict=True)
        ]
        joined = self._join(parts, exhausted=ranking.candidates.exhausted)
        return replace(joined, receipt=ranking.receipt)

    def terms(self, ranking: Ranking) -> Explained:
        """Return the terms that give most to the mean lexical scores; none without words."""
        vector_ids = ranking.vector_ids.tolist()
        if WORDS not in ranking.candidates.scores:
            return {}
        if self.alone:
            return self.searches[0].explain(vector_ids)
        sums: dict[int, dict[str, float]] = {vector_id: {} for vector_id in vector_ids}
        totals = dict.fromkeys(vector_ids, 0.0)
        for part, search in zip(
            ranking.parts, self.searches[: len(self.examples.like)], strict=False
        ):
            lexical = dict(zip(vector_ids, part.candidates.scores[WORDS].tolist(), strict=True))
            for vector_id, terms in search.explain(vector_ids).items():
                weights, score = sums[vector_id], lexical[vector_id]
                for term in terms:
                    weights[term.term] = weights.get(term.term, 0.0) + term.weight * score
                totals[vector_id] += score
        return {
            vector_id: _highest_weights(weights, totals[vector_id])
            for vector_id, weights in sums.items()
            if weights
        }

    def example_scores(self, ranking: Ranking, row: int) -> ExampleScores:
        """Return the scores of a row with each example, liked and not; none of a query alone."""
        scores = tuple(float(part.scores[row]) for part in ranking.parts)
        liked = len(self.examples.like)
        return scores[:liked], scores[liked:]

    def _others(self, candidates: Candidates) -> Candidates:
        """Leave out the queries."""
        for vector_id in self.left_out:
            rows = np.flatnonzero(candidates.vector_ids != vector_id)
            if len(rows) < len(candidates):
                candidates = candidates.take(rows)
        return candidates

    def _score(self, vector_ids: Int64) -> list[Ranking]:
        """Score the same documents with each example; those deleted meanwhile are left out."""
        mode = self.options.mode
        channels = (VECTOR,) if mode == "semantic" else (VECTOR, WORDS)
        parts = [
            score_candidates(self.fusion, mode, searches.score(channels, vector_ids))
            for searches in self.searches
        ]
        present = parts[0].vector_ids
        for part in parts[1:]:
            present = np.intersect1d(present, part.vector_ids)
        return [part.take(np.flatnonzero(np.isin(part.vector_ids, present))) for part in parts]

    def _align(self, ranking: Ranking, options: AlignmentOptions, k: int) -> Ranking:
        """Align the best with the query or each example; out of time, the ranking is what it was.

        By several examples all of the best are, not only those that may be among the first k.
        """
        deadline = time.perf_counter() + options.budget_seconds
        most = min(len(ranking), options.candidates)
        if not self.alone:
            options, k = replace(options, margin=inf), most
        aligned: list[Ranking] = []
        for part, search in zip(ranking.parts or (ranking,), self.searches, strict=True):
            found = align_candidates(search, part, self.fusion, options, k, deadline)
            if found is None:
                return replace(ranking, receipt=AlignmentReceipt(False, most, 0))
            aligned.append(found)
        known = [~np.isnan(part.candidates.scores.get(BLOCKS, np.nan)) for part in aligned]
        scored = max(int(np.count_nonzero(rows)) for rows in known)
        joined = self._join(aligned, exhausted=ranking.candidates.exhausted)
        return replace(joined, receipt=AlignmentReceipt(scored > 0, most, scored))

    def _join(self, parts: Sequence[Ranking], *, exhausted: bool) -> Ranking:
        """Rank the documents of parts, all in the same order, by the scores of all parts."""
        if self.alone:
            return parts[0].sorted()
        liked, unliked = parts[: len(self.examples.like)], parts[len(self.examples.like) :]
        scores = combine_scores(
            np.stack([part.scores for part in liked]), [part.scores for part in unliked]
        )
        kinds = {part.scored_as for part in liked}
        known = [part.candidates.scores for part in liked]
        channels = {name: [found[name] for found in known if name in found] for name in known[0]}
        means = {name: _mean(values) for name, values in channels.items()}
        return Ranking(
            candidates=replace(parts[0].candidates, scores=means, exhausted=exhausted),
            scores=scores,
            semantic=_mean([part.semantic for part in liked]),
            scored_as=self.options.mode if len(kinds) > 1 else kinds.pop(),
            parts=tuple(parts),
        ).sorted()


def combine_scores(like: Float32, unlike: Sequence[Float32]) -> Float32:
    """Return the score Float32[N] of documents by the formula of this module.

    Args:
        like: Float32[L, N], scores with the examples that are liked.
        unlike: Float32[N] with each of the others.
    """
    roots = np.sqrt(np.maximum(like, 0.0))
    scores: Float32 = np.square(roots.mean(axis=0)).astype(np.float32)
    if unlike:
        nearer = np.maximum(0.0, np.max(np.stack(unlike), axis=0) - scores)
        scores = (scores - UNLIKE_WEIGHT * nearer).astype(np.float32)
    return scores


def _exactly(fusion: LinearFusion, part: Ranking, rows: Int64, exact: Float32) -> Ranking:
    """Score rows Int64[M] by these cosines Float32[M]."""
    cosines = part.candidates.scores[VECTOR].copy()
    cosines[rows] = exact
    return with_channel(fusion, part, VECTOR, bounded(cosines))


def _mean(values: Sequence[Float32]) -> Float32:
    mean: Float32 = np.mean(np.stack(values), axis=0, dtype=np.float32)
    return mean


def _highest_weights(weights: Mapping[str, float], total: float) -> tuple[TermWeight, ...]:
    """Return the terms of the highest weights, as shares of the total."""
    best = sorted(weights.items(), key=lambda term: (-term[1], term[0]))[:_TERMS]
    return tuple(TermWeight(term, weight / total) for term, weight in best)

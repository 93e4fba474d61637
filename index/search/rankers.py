"""What ranks the documents of a search: one query, or several examples together.

A search by examples finds the candidates of each example that is liked, and scores all of them with
every example. The score of a document is

    liked   = (mean over the liked of sqrt(max(0, score)))²
    score   = liked - UNLIKE_WEIGHT * max(0, highest score of an unliked - liked)

A mean of roots is nearer to the lowest score than a plain mean is: what matches all of the examples
a little comes before what matches one of them well. An unliked example changes nothing about
documents that match the liked ones better. `docs/results/search.md` has both measured.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from encoder.arrays import Float32, Int64
from index.directory.data_directory import DataDirectory
from index.id_set import IdSet
from index.lexical.scoring import TermWeight
from index.search.alignment import align_candidates
from index.search.fusion import LinearFusion
from index.search.modes import Ranking, Seconds, rank, rescore, score_documents, timed, with_scores
from index.search.records import (
    AlignmentOptions,
    AlignmentReceipt,
    EncodedQuery,
    Examples,
    SearchOptions,
)
from index.vectors.vector_index import NO_VECTOR

UNLIKE_WEIGHT = 0.25
_TERMS = 8  # of a hit

ExampleScores = tuple[tuple[float, ...], tuple[float, ...]]
Explained = Mapping[int, tuple[TermWeight, ...]]


@dataclass(slots=True)
class QueryRanker:
    """Ranks by one query."""

    data: DataDirectory
    query: EncodedQuery
    options: SearchOptions
    fusion: LinearFusion
    seconds: Seconds = field(default_factory=dict)

    @property
    def left_out(self) -> frozenset[int]:
        """Return the vector id of the query, if it is stored: it is no hit."""
        return frozenset({self.query.vector_id} - {NO_VECTOR})

    def rank(self, k: int, among: IdSet | None) -> Ranking:
        """Rank at least k documents other than the query, if so many exist, and align the best."""
        mode, alignment = self.options.mode, self.options.alignment
        first = rank(self.data, self.query, k, mode, self.fusion, among, self.seconds)
        if alignment is None or mode == "lexical":
            return first
        with timed(self.seconds, "align"):
            store = self.data.store
            return align_candidates(store, self.query, first, self.fusion, alignment, k)

    def rescored(self, ranking: Ranking, rows: Int64, vectors: Float32) -> Ranking:
        """Rank the same documents by the vectors Float32[M, dimension] of some rows Int64[M]."""
        vector = _with_rows(ranking.vector, rows, vectors @ self.query.vector)
        return rescore(ranking, self.fusion, vector=vector)

    def terms(self, ranking: Ranking, vector_ids: Sequence[int]) -> Explained:
        """Return the terms that give most to the lexical scores; none without words."""
        if ranking.terms is None:
            return {}
        with timed(self.seconds, "lexical"):
            return self.data.store.lexical.explain(ranking.terms, vector_ids, _TERMS)

    def example_scores(self, ranking: Ranking, row: int) -> ExampleScores:
        """Return none: a query has no examples."""
        return (), ()


@dataclass(slots=True)
class ExamplesRanker:
    """Ranks by several examples; of its rankings `parts` are those of each example."""

    data: DataDirectory
    examples: Examples
    options: SearchOptions
    fusion: LinearFusion
    seconds: Seconds = field(default_factory=dict)

    @property
    def left_out(self) -> frozenset[int]:
        """Return the vector ids of the examples that are stored: they are no hits."""
        return frozenset(example.vector_id for example in self.examples.all) - {NO_VECTOR}

    def rank(self, k: int, among: IdSet | None) -> Ranking:
        """Rank at least k documents other than the examples, and align the best with each."""
        data, mode, fusion, seconds = self.data, self.options.mode, self.fusion, self.seconds
        k += len(self.left_out)
        found = [
            rank(data, example, k, mode, fusion, among, seconds) for example in self.examples.like
        ]
        ids = np.unique(np.concatenate([candidates.vector_ids for candidates in found]))
        ids = ids[~np.isin(ids, list(self.left_out))]
        parts = self._score(ids)
        ranking = self._join(parts, exhausted=all(candidates.exhausted for candidates in found))
        if self.options.alignment is None or mode == "lexical":
            return ranking
        with timed(seconds, "align"):
            return self._align(ranking, self.options.alignment)

    def rescored(self, ranking: Ranking, rows: Int64, vectors: Float32) -> Ranking:
        """Rank the same documents by the vectors Float32[M, dimension] of some rows Int64[M]."""

        def exactly(part: Ranking, example: EncodedQuery) -> Ranking:
            vector = _with_rows(part.vector, rows, vectors @ example.vector)
            return with_scores(part, self.fusion, vector=vector)

        return self._changed(ranking, exactly)

    def terms(self, ranking: Ranking, vector_ids: Sequence[int]) -> Explained:
        """Return the terms that give most to the mean lexical scores; none without words."""
        row_of = {vector_id: row for row, vector_id in enumerate(ranking.vector_ids.tolist())}
        sums: dict[int, dict[str, float]] = {vector_id: {} for vector_id in vector_ids}
        totals = dict.fromkeys(vector_ids, 0.0)
        with timed(self.seconds, "lexical"):
            for part in ranking.parts[: len(self.examples.like)]:
                if part.terms is None or part.lexical is None:
                    return {}
                found = self.data.store.lexical.explain(part.terms, vector_ids, _TERMS)
                for vector_id, terms in found.items():
                    weights, score = sums[vector_id], float(part.lexical[row_of[vector_id]])
                    for term in terms:
                        weights[term.term] = weights.get(term.term, 0.0) + term.weight * score
                    totals[vector_id] += score
        return {
            vector_id: _highest_weights(weights, totals[vector_id])
            for vector_id, weights in sums.items()
            if weights
        }

    def example_scores(self, ranking: Ranking, row: int) -> ExampleScores:
        """Return the scores of a row with each example, liked and not."""
        scores = tuple(float(part.scores[row]) for part in ranking.parts)
        liked = len(self.examples.like)
        return scores[:liked], scores[liked:]

    def _score(self, vector_ids: Int64) -> list[Ranking]:
        """Score the same documents with each example; those deleted meanwhile are left out."""
        mode, fusion, seconds = self.options.mode, self.fusion, self.seconds
        parts = [
            score_documents(self.data, example, vector_ids, mode, fusion, seconds)
            for example in self.examples.all
        ]
        present = parts[0].vector_ids
        for part in parts[1:]:
            present = np.intersect1d(present, part.vector_ids)
        return [part.take(np.flatnonzero(np.isin(part.vector_ids, present))) for part in parts]

    def _align(self, ranking: Ranking, options: AlignmentOptions) -> Ranking:
        """Align the best with each example; out of time, the ranking is what it was."""
        deadline = time.perf_counter() + options.budget_seconds
        rows = np.arange(min(len(ranking.vector_ids), options.candidates))
        receipt = AlignmentReceipt(aligned=False, candidates=len(rows), scored=0)
        aligned: list[Ranking] = []
        for part, example in zip(ranking.parts, self.examples.all, strict=True):
            left = deadline - time.perf_counter()
            limits = replace(options, budget_seconds=left, margin=inf)
            best = part.take(rows)
            scored = align_candidates(
                self.data.store, example, best, self.fusion, limits, len(rows)
            )
            if time.perf_counter() >= deadline:
                return replace(ranking, receipt=receipt)
            aligned.append(_with_alignment(part, scored, self.fusion))
        scored_rows = [0 if part.receipt is None else part.receipt.scored for part in aligned]
        receipt = replace(receipt, aligned=max(scored_rows) > 0, scored=max(scored_rows))
        return replace(self._join(aligned, exhausted=ranking.exhausted), receipt=receipt)

    def _changed(
        self, ranking: Ranking, change: Callable[[Ranking, EncodedQuery], Ranking]
    ) -> Ranking:
        parts = list(map(change, ranking.parts, self.examples.all))
        joined = self._join(parts, exhausted=ranking.exhausted)
        return replace(joined, receipt=ranking.receipt)

    def _join(self, parts: Sequence[Ranking], *, exhausted: bool) -> Ranking:
        """Rank the documents of parts, all in the same order, by the scores of all parts."""
        liked, unliked = parts[: len(self.examples.like)], parts[len(self.examples.like) :]
        scores = combine_scores(
            np.stack([part.scores for part in liked]), [part.scores for part in unliked]
        )
        kinds = {part.scored_as for part in liked}
        lexical = [part.lexical for part in liked if part.lexical is not None]
        alignment = [part.alignment for part in liked if part.alignment is not None]
        ranking = replace(
            parts[0],
            scores=scores,
            vector=_mean([part.vector for part in liked]),
            semantic=_mean([part.semantic for part in liked]),
            lexical=_mean(lexical) if lexical else None,
            terms=None,
            scored_as=self.options.mode if len(kinds) > 1 else kinds.pop(),
            exhausted=exhausted,
            alignment=_mean(alignment) if alignment else None,
            parts=tuple(parts),
        )
        return ranking.take(np.lexsort((ranking.vector_ids, -scores)))


Ranker = QueryRanker | ExamplesRanker


def combine_scores(
    like: Float32, unlike: Sequence[Float32], weight: float = UNLIKE_WEIGHT
) -> Float32:
    """Return the score Float32[N] of documents by the formula of this module.

    Args:
        like: Float32[L, N], scores with the examples that are liked.
        unlike: Float32[N] with each of the others.
        weight: of the others.
    """
    roots = np.sqrt(np.maximum(like, 0.0))
    scores: Float32 = np.square(roots.mean(axis=0)).astype(np.float32)
    if unlike:
        nearer = np.maximum(0.0, np.max(np.stack(unlike), axis=0) - scores)
        scores = (scores - weight * nearer).astype(np.float32)
    return scores


def _with_alignment(part: Ranking, scored: Ranking, fusion: LinearFusion) -> Ranking:
    """Return a part with the alignment of some of its documents, which `scored` has reordered."""
    if scored.alignment is None:
        return replace(part, receipt=scored.receipt)
    alignment = np.full(len(part.vector_ids), np.nan, dtype=np.float32)
    row_of = {vector_id: row for row, vector_id in enumerate(part.vector_ids.tolist())}
    alignment[[row_of[vector_id] for vector_id in scored.vector_ids.tolist()]] = scored.alignment
    return replace(with_scores(part, fusion, alignment=alignment), receipt=scored.receipt)


def _with_rows(cosines: Float32, rows: Int64, known: Float32) -> Float32:
    changed = cosines.copy()
    changed[rows] = known
    return changed


def _mean(values: Sequence[Float32]) -> Float32:
    mean: Float32 = np.mean(np.stack(values), axis=0, dtype=np.float32)
    return mean


def _highest_weights(weights: Mapping[str, float], total: float) -> tuple[TermWeight, ...]:
    """Return the terms of the highest weights, as shares of the total."""
    best = sorted(weights.items(), key=lambda term: (-term[1], term[0]))[:_TERMS]
    return tuple(TermWeight(term, weight / total) for term, weight in best)

"""The modes of a search: ranking by vectors, by words, and by both."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Float32, Int64
from index.directory.data_directory import DataDirectory
from index.id_set import IdSet
from index.lexical.lexical_index import CANDIDATES
from index.lexical.scoring import LexicalQuery
from index.search.fusion import LinearFusion, apply_rule, semantic_scores
from index.search.parallel_steps import PARALLEL_STEPS
from index.search.records import AlignmentReceipt, EncodedQuery, Mode, SearchStage
from index.vectors.vector_index import NO_VECTOR, SearchResult

Seconds = dict[SearchStage, float]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates as a mode ranks them, best first. The query itself may be among them.

    Attributes:
        vector_ids: Int64[N].
        scores: Float32[N], which they are ranked by.
        vector: Float32[N], cosines of the document vectors.
        semantic: Float32[N], semantic scores.
        lexical: Float32[N], cosines of the words; None in semantic mode.
        terms: the terms of the query; None in semantic mode.
        scored_as: the mode whose scores these are.
        exhausted: a wider search would find no more candidates.
        generation: of the index that was searched.
        sequence: of the store that the index held.
        alignment: Float32[N], alignment scores, NaN where there is none.
        receipt: what became of the alignment; None if none was tried.
        parts: of a search by several examples, what each of them gives the same documents, in the
            same order; none in other searches.
    """

    vector_ids: Int64
    scores: Float32
    vector: Float32
    semantic: Float32
    lexical: Float32 | None
    terms: LexicalQuery | None
    scored_as: Mode
    exhausted: bool
    generation: int
    sequence: int
    alignment: Float32 | None = None
    receipt: AlignmentReceipt | None = None
    parts: tuple["Ranking", ...] = ()

    def take(self, rows: Int64) -> "Ranking":
        """Return a ranking of these rows Int64[M], in this order."""
        return replace(
            self,
            vector_ids=self.vector_ids[rows],
            scores=self.scores[rows],
            vector=self.vector[rows],
            semantic=self.semantic[rows],
            lexical=None if self.lexical is None else self.lexical[rows],
            alignment=None if self.alignment is None else self.alignment[rows],
            parts=tuple(part.take(rows) for part in self.parts),
        )


@contextmanager
def timed(seconds: Seconds, stage: SearchStage) -> Iterator[None]:
    """Add the time that the block takes to a stage."""
    started = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started


def rank(
    data: DataDirectory,
    query: EncodedQuery,
    k: int,
    mode: Mode,
    fusion: LinearFusion,
    among: IdSet | None,
    seconds: Seconds,
) -> Ranking:
    """Rank at least the k best documents other than the query, if so many exist."""
    rankers = {"semantic": _rank_semantic, "lexical": _rank_lexical, "hybrid": _rank_hybrid}
    return rankers[mode](data, query, k, fusion, among, seconds)


def _rank_semantic(
    data: DataDirectory,
    query: EncodedQuery,
    k: int,
    fusion: LinearFusion,
    among: IdSet | None,
    seconds: Seconds,
) -> Ranking:
    """Rank by the cosine of the document vectors, which the semantic score rises with."""
    with timed(seconds, "search"):
        vectors = query.vector[np.newaxis]
        nearest = data.index.search(vectors, max(k + 1, CANDIDATES), among=among)
    found = nearest.ids[0] != NO_VECTOR
    cosines = _bounded(nearest.scores[0][found])
    scores = semantic_scores(fusion, "semantic", cosines)
    return Ranking(
        vector_ids=nearest.ids[0][found],
        scores=scores,
        vector=cosines,
        semantic=scores,
        lexical=None,
        terms=None,
        scored_as="semantic",
        exhausted=not found.all(),
        generation=nearest.generation,
        sequence=nearest.sequence,
    )


def _rank_lexical(
    data: DataDirectory,
    query: EncodedQuery,
    k: int,
    fusion: LinearFusion,
    among: IdSet | None,
    seconds: Seconds,
) -> Ranking:
    """Rank by the cosine of the words; a document without a shared word is not found."""
    generation, sequence = data.index.generation, data.index.sequence
    with timed(seconds, "lexical"):
        words, terms = data.store.lexical, _read_terms(data, query)
        best = words.search(terms, max(k + 1, CANDIDATES), among=among)
        if among is not None and len(terms) and len(best.vector_ids) <= k:
            # The rarest terms find too few of the selection: compare all of it.
            best = words.search_all(terms, k + 1, among)
    with timed(seconds, "search"):
        cosines = data.index.scores(query.vector, best.vector_ids)
    present = ~np.isnan(cosines)
    cosines = _bounded(cosines[present])
    return Ranking(
        vector_ids=best.vector_ids[present],
        scores=best.scores[present],
        vector=cosines,
        semantic=semantic_scores(fusion, "lexical", cosines),
        lexical=best.scores[present],
        terms=terms,
        scored_as="lexical",
        exhausted=len(best.vector_ids) <= k,
        generation=generation,
        sequence=sequence,
    )


def _rank_hybrid(
    data: DataDirectory,
    query: EncodedQuery,
    k: int,
    fusion: LinearFusion,
    among: IdSet | None,
    seconds: Seconds,
) -> Ranking:
    """Rank by both cosines the candidates of each channel.

    A text without any indexed, distinctive word is ranked and scored by its vector alone.
    """
    k = max(k + 1, CANDIDATES)

    def read_words() -> tuple[LexicalQuery, Int64]:
        with timed(seconds, "lexical"):
            terms = _read_terms(data, query)
            return terms, data.store.lexical.candidates(terms, k, among)

    def search_vectors() -> SearchResult:
        with timed(seconds, "search"):
            return data.index.search(query.vector[np.newaxis], k, among=among)

    (terms, by_words), nearest = PARALLEL_STEPS.both(read_words, search_vectors)
    found = nearest.ids[0] != NO_VECTOR
    others = np.setdiff1d(by_words, nearest.ids[0], assume_unique=True)
    candidates = np.concatenate([nearest.ids[0][found], others])
    order = np.argsort(candidates)
    candidates = candidates[order]

    def score_words() -> Float32:
        with timed(seconds, "lexical"):
            return data.store.lexical.score(terms, candidates)

    def score_others() -> Float32:
        with timed(seconds, "search"):
            return data.index.scores(query.vector, others)

    lexical, cosines = PARALLEL_STEPS.both(score_words, score_others)
    cosines = np.concatenate([nearest.scores[0][found], cosines])[order]
    present = ~np.isnan(cosines)
    candidates, lexical = candidates[present], lexical[present]
    cosines = _bounded(cosines[present])
    scored_as: Mode = "hybrid" if len(terms) else "semantic"
    semantic, scores = apply_rule(fusion, scored_as, cosines, lexical=lexical)
    order = np.lexsort((candidates, -scores))
    return Ranking(
        vector_ids=candidates[order],
        scores=scores[order],
        vector=cosines[order],
        semantic=semantic[order],
        lexical=lexical[order],
        terms=terms,
        scored_as=scored_as,
        exhausted=not found.all(),
        generation=nearest.generation,
        sequence=nearest.sequence,
    )


def score_documents(
    data: DataDirectory,
    query: EncodedQuery,
    vector_ids: Int64,
    mode: Mode,
    fusion: LinearFusion,
    seconds: Seconds,
) -> Ranking:
    """Score given documents, in their order; those that are not in the index are left out."""
    generation, sequence = data.index.generation, data.index.sequence
    with timed(seconds, "search"):
        cosines = data.index.scores(query.vector, vector_ids)
    present = ~np.isnan(cosines)
    vector_ids, cosines = vector_ids[present], _bounded(cosines[present])
    lexical, terms = None, None
    if mode != "semantic":
        with timed(seconds, "lexical"):
            terms = _read_terms(data, query)
            lexical = data.store.lexical.score(terms, vector_ids)
    ranking = Ranking(
        vector_ids=vector_ids,
        scores=cosines,
        vector=cosines,
        semantic=cosines,
        lexical=lexical,
        terms=terms,
        scored_as="semantic" if mode == "hybrid" and not terms else mode,
        exhausted=False,
        generation=generation,
        sequence=sequence,
    )
    return with_scores(ranking, fusion)


def rescore(
    ranking: Ranking,
    rule: LinearFusion,
    *,
    vector: Float32 | None = None,
    alignment: Float32 | None = None,
) -> Ranking:
    """Rank the same documents by other cosines, or by their alignment; see `with_scores`."""
    changed = with_scores(ranking, rule, vector=vector, alignment=alignment)
    return changed.take(np.lexsort((changed.vector_ids, -changed.scores)))


def with_scores(
    ranking: Ranking,
    rule: LinearFusion,
    *,
    vector: Float32 | None = None,
    alignment: Float32 | None = None,
) -> Ranking:
    """Return the same documents, in the same order, with the scores that other cosines give.

    Args:
        ranking: what was ranked before.
        rule: how scores are combined.
        vector: Float32[N], cosines of the document vectors; None leaves them as they are.
        alignment: Float32[N], NaN for documents that were not aligned; None leaves it as it is.
    """
    vector = ranking.vector if vector is None else _bounded(vector)
    alignment = ranking.alignment if alignment is None else alignment
    semantic, scores = apply_rule(rule, ranking.scored_as, vector, alignment, ranking.lexical)
    return replace(ranking, scores=scores, vector=vector, semantic=semantic, alignment=alignment)


def _read_terms(data: DataDirectory, query: EncodedQuery) -> LexicalQuery:
    """Return the terms of a query, which are stored where the query is."""
    words = data.store.lexical
    if query.terms is not None:
        return query.terms
    if query.vector_id != NO_VECTOR:
        return words.read_stored(query.vector_id)
    return words.read(query.text, title=query.title)


def _bounded(cosines: Float32) -> Float32:
    """Undo rounding, which may carry a cosine past its bounds."""
    return np.clip(cosines, -1.0, 1.0).astype(np.float32)

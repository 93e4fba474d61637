"""The modes of a search: ranking by vectors, by words, and by both."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from index.directory.data_directory import DataDirectory
from index.id_set import IdSet
from index.lexical.lexical_index import CANDIDATES, LexicalMatches
from index.lexical.scoring import LexicalQuery
from index.search.fusion import LinearFusion, fuse, semantic_scores
from index.search.records import AlignmentReceipt, EncodedQuery, Mode, SearchStage
from index.vectors.vector_index import NO_VECTOR

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
    """Rank at least the k best documents besides the query, if so many exist.

    Args:
        data: where to search.
        query: what to search for.
        k: how many are needed.
        mode: what documents are ranked by.
        fusion: how scores are combined.
        among: rank only these documents.
        seconds: the time of each stage is added to it.

    Raises:
        StoreError: the store cannot be read.
        ValueError: the vector has a wrong shape or is not finite.
    """
    if mode == "semantic":
        return _rank_semantic(data, query, k, fusion, among, seconds)
    if mode == "lexical":
        return _rank_lexical(data, query, k, fusion, among, seconds)
    return _rank_hybrid(data, query, k, fusion, among, seconds)


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
    scores = semantic_scores(fusion, cosines)
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
        terms, ids, lexical = _search_words(data, query, k, among)
        if among is not None and terms.terms and len(ids) <= k:
            # The rarest terms find too few of the selection: compare all of it.
            ids, lexical = _by_id(data.store.lexical.search_all(terms, k + 1, among))
    with timed(seconds, "search"):
        living, cosines = _vector_scores(data, query, ids)
    lexical_scores = lexical[np.isin(ids, living)]
    order = np.lexsort((living, -lexical_scores))
    return Ranking(
        vector_ids=living[order],
        scores=lexical_scores[order],
        vector=cosines[order],
        semantic=semantic_scores(fusion, cosines)[order],
        lexical=lexical_scores[order],
        terms=terms,
        scored_as="lexical",
        exhausted=len(ids) <= k,
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
    """Rank by both cosines: the candidates of each channel get the exact score of the other.

    A text without any indexed, distinctive word is ranked and scored by its vector alone.
    """
    with timed(seconds, "lexical"):
        terms, by_words, word_scores = _search_words(data, query, k, among)
    with timed(seconds, "search"):
        vectors = query.vector[np.newaxis]
        nearest = data.index.search(vectors, max(k + 1, CANDIDATES), among=among)
        found = nearest.ids[0] != NO_VECTOR
        living, cosines = _vector_scores(data, query, np.union1d(by_words, nearest.ids[0][found]))
    with timed(seconds, "lexical"):
        scored = np.isin(living, by_words)
        lexical = np.zeros(len(living), dtype=np.float32)
        lexical[scored] = word_scores[np.isin(by_words, living)]
        lexical[~scored] = data.store.lexical.score(terms, living[~scored])
    semantic = semantic_scores(fusion, cosines)
    scores = fuse(fusion, semantic, lexical) if terms.terms else semantic
    order = np.lexsort((living, -scores))
    return Ranking(
        vector_ids=living[order],
        scores=scores[order],
        vector=cosines[order],
        semantic=semantic[order],
        lexical=lexical[order],
        terms=terms,
        scored_as="hybrid" if terms.terms else "semantic",
        exhausted=not found.all(),
        generation=nearest.generation,
        sequence=nearest.sequence,
    )


def _search_words(
    data: DataDirectory, query: EncodedQuery, k: int, among: IdSet | None
) -> tuple[LexicalQuery, Int64, Float32]:
    """Return the terms of the query, and the ids Int64[N], ascending, and scores it found."""
    stored = query.vector_id != NO_VECTOR
    terms = data.store.lexical.read(query.text, title=query.title, stored=stored)
    found = data.store.lexical.search(terms, max(k + 1, CANDIDATES), among=among)
    return terms, *_by_id(found)


def _by_id(found: LexicalMatches) -> tuple[Int64, Float32]:
    order = np.argsort(found.vector_ids)
    return found.vector_ids[order], found.scores[order]


def _vector_scores(data: DataDirectory, query: EncodedQuery, ids: Int64) -> tuple[Int64, Float32]:
    """Return those of these ids that are still stored, ascending, with their cosines."""
    living, vectors = data.store.vectors(ids)
    return living, _bounded(vectors @ query.vector)


def _bounded(cosines: Float32) -> Float32:
    """Undo rounding, which may carry a cosine past its bounds."""
    return np.clip(cosines, -1.0, 1.0).astype(np.float32)

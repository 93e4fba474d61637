"""The three ways to search: by vectors, by words, and by both."""

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from encoder.arrays import Float32, Int64
from index.directory.data_directory import DataDirectory
from index.id_set import IdSet
from index.lexical.lexical_index import CANDIDATES, LexicalMatches
from index.lexical.scoring import LexicalQuery, TermWeight
from index.search.fusion import LinearFusion, fuse
from index.vectors.vector_index import NO_VECTOR

Mode = Literal["semantic", "lexical", "hybrid"]
DEFAULT_MODE: Mode = "hybrid"  # the best on validation queries of three corpora


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of both channels.

    Attributes:
        text: the whole text.
        vector: Float32[dimension] of unit norm.
        itself: its own vector id, where it is a stored document; it is left out of the answer.
        title: of the text, if it has one.
    """

    text: str
    vector: Float32
    itself: int = NO_VECTOR
    title: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A document with its scores.

    Attributes:
        vector_id: of the document.
        score: what it is ranked by.
        semantic: cosine of the document vectors.
        lexical: cosine of the words; None where they were not looked at.
        terms: that give most to the lexical score, each with its share of it.
    """

    vector_id: int
    score: float
    semantic: float
    lexical: float | None = None
    terms: tuple[TermWeight, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundByWords:
    """An answer, best first.

    Attributes:
        found: the documents.
        scored_as: the mode whose scores these are.
        lexical_seconds: that the lexical index took.
        search_seconds: that the vectors took.
        generation: of the index that was searched; its words are those of the store.
        sequence: of the store that the index held.
    """

    found: tuple[Found, ...]
    scored_as: Mode
    lexical_seconds: float
    search_seconds: float
    generation: int
    sequence: int


def search_semantic(
    data: DataDirectory, asked: Asked, k: int, *, among: IdSet | None = None
) -> tuple[Found, ...]:
    """Find the k documents of the nearest vectors, of `among`, best first.

    Raises:
        ValueError: the vector has a wrong shape or is not finite.
    """
    nearest = data.index.search(asked.vector[np.newaxis], k + 1, among=among)
    scored = zip(nearest.ids[0].tolist(), nearest.scores[0].tolist(), strict=True)
    found = [Found(one, score, score) for one, score in scored if one != NO_VECTOR]
    return tuple(one for one in found if one.vector_id != asked.itself)[:k]


def search_lexical(
    data: DataDirectory, asked: Asked, k: int, *, among: IdSet | None = None
) -> FoundByWords:
    """Find the k documents, of `among`, that share the most telling words.

    Fewer where fewer share one.

    Raises:
        StoreError: the store cannot be read.
    """
    generation, sequence = data.index.generation, data.index.sequence
    started = time.perf_counter()
    query, ids, scores = _search_words(data, asked, k, among)
    if among is not None and query.terms and len(ids) <= k:
        ids, scores = _by_id(data.store.lexical.search_all(query, k + 1, among))
    searched = time.perf_counter()
    living, semantic = _semantic_scores(data, asked, ids)
    scored = time.perf_counter()
    lexical = scores[np.isin(ids, living)]
    found = _best(data, query, asked, k, (living, lexical, semantic, lexical))
    explained = time.perf_counter()
    lexical_seconds = searched - started + explained - scored
    seconds = lexical_seconds, scored - searched
    return FoundByWords(found, "lexical", *seconds, generation, sequence)


def search_hybrid(
    data: DataDirectory,
    asked: Asked,
    k: int,
    rule: LinearFusion,
    *,
    among: IdSet | None = None,
) -> FoundByWords:
    """Find the k best documents, of `among`, by both channels.

    The candidates of each channel get the exact score of the other. A text without any indexed
    word that tells documents apart is ranked, and scored, by its vector alone.

    Raises:
        StoreError: the store cannot be read.
        ValueError: the vector has a wrong shape or is not finite.
    """
    started = time.perf_counter()
    query, of_words, scores = _search_words(data, asked, k, among)
    searched = time.perf_counter()
    wanted = max(k + 1, CANDIDATES)
    by_vector = data.index.search(asked.vector[np.newaxis], wanted, among=among)
    nearest = by_vector.ids[0]
    ids = np.union1d(of_words, nearest[nearest != NO_VECTOR])
    living, semantic = _semantic_scores(data, asked, ids)
    scored = time.perf_counter()
    lexical = np.zeros(len(living), dtype=np.float32)
    missing = ~np.isin(living, of_words)
    lexical[missing] = data.store.lexical.score(query, living[missing])
    lexical[~missing] = scores[np.isin(of_words, living)]
    scored_as: Mode = "hybrid" if query.terms else "semantic"
    fused = fuse(rule, semantic, lexical) if query.terms else semantic
    found = _best(data, query, asked, k, (living, fused, semantic, lexical))
    explained = time.perf_counter()
    lexical_seconds = searched - started + explained - scored
    seconds = lexical_seconds, scored - searched
    return FoundByWords(found, scored_as, *seconds, by_vector.generation, by_vector.sequence)


def search(
    data: DataDirectory,
    asked: Asked,
    k: int,
    mode: Mode,
    rule: LinearFusion,
    *,
    among: IdSet | None = None,
) -> tuple[tuple[Found, ...], Mode]:
    """Find the k best documents, of `among`, by a mode; and return that whose scores theirs are.

    Raises:
        StoreError: the store cannot be read.
        ValueError: the vector has a wrong shape or is not finite.
    """
    if mode == "semantic":
        return search_semantic(data, asked, k, among=among), mode
    if mode == "lexical":
        answer = search_lexical(data, asked, k, among=among)
    else:
        answer = search_hybrid(data, asked, k, rule, among=among)
    return answer.found, answer.scored_as


def _search_words(
    data: DataDirectory, asked: Asked, k: int, among: IdSet | None
) -> tuple[LexicalQuery, Int64, Float32]:
    """Return the query, ids Int64[N], ascending, of what it found, and their scores Float32[N]."""
    stored = asked.itself != NO_VECTOR
    query = data.store.lexical.read(asked.text, title=asked.title, stored=stored)
    found = data.store.lexical.search(query, max(k + 1, CANDIDATES), among=among)
    return query, *_by_id(found)


def _by_id(found: LexicalMatches) -> tuple[Int64, Float32]:
    order = np.argsort(found.vector_ids)
    return found.vector_ids[order], found.scores[order]


def _semantic_scores(data: DataDirectory, asked: Asked, ids: Int64) -> tuple[Int64, Float32]:
    """Return those of these ids that live, ascending, with their cosines."""
    living, vectors = data.store.vectors(ids)
    # Rounding may carry a cosine past its bounds.
    return living, np.clip(vectors @ asked.vector, -1.0, 1.0).astype(np.float32)


def _best(
    data: DataDirectory,
    query: LexicalQuery,
    asked: Asked,
    k: int,
    scored: tuple[Int64, Float32, Float32, Float32],
) -> tuple[Found, ...]:
    ids, scores, semantic, lexical = scored
    order = np.lexsort((ids, -scores))
    order = order[ids[order] != asked.itself][:k]
    explained = data.store.lexical.explain(query, ids[order].tolist())
    return tuple(
        Found(
            vector_id=int(ids[row]),
            score=float(scores[row]),
            semantic=float(semantic[row]),
            lexical=float(lexical[row]),
            terms=explained.get(int(ids[row]), ()),
        )
        for row in order.tolist()
    )

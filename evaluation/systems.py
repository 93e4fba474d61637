"""Systems of an evaluation: each scores documents for queries, and ranks them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from encoder.alignment.scoring import align, align_pairs
from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Int64
from index.engine.port import BLOCKS, VECTOR, WORDS, Candidates, EncodedQuery
from index.id_set import IdSet
from index.lexical.scoring import TermWeight, rows_of_texts
from index.search.corpus_calibration import MIN_DOCUMENTS, ChannelScores, sample_pairs
from index.search.ranker import Ranker
from index.search.records import (
    DEFAULT_ALIGNMENT,
    AlignmentOptions,
    Examples,
    Mode,
    SearchOptions,
)
from index.search.score import LinearFusion, Spreads
from index.vectors.faiss.exact import products

DEPTH = 100  # of a ranking: no measure reads further
_QUERIES_PER_CALL = 128


@dataclass(frozen=True, slots=True)
class System:
    """One way to score documents against each other, given as rows.

    Rows 0 to N - 1 are the documents of the corpus. Queries that are no documents follow.

    Attributes:
        name: as tables show it.
        settings: describes what the scores depend on.
        score: rows Int64[Q] -> Float32[Q, N], the score of every document for each of them.
        score_pairs: rows Int64[P], rows Int64[P] -> Float32[P].
    """

    name: str
    settings: str
    score: Callable[[Int64], Float32]
    score_pairs: Callable[[Int64, Int64], Float32]


Ranked = Mapping[str, Mapping[str, float]]
"""By the id of each query, the scores of the best documents by their ids, best first."""


def vector_system(
    name: str, settings: str, vectors: Float32, documents: int | None = None
) -> System:
    """Make the system of unit vectors Float32[N + others, dimension]: the score is the cosine."""
    corpus = vectors[:documents]

    def score(rows: Int64) -> Float32:
        return products(vectors[rows], corpus)

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        cosines: Float32 = np.einsum("ph,ph->p", vectors[sources], vectors[targets])
        return cosines

    return System(name, settings, score, score_pairs)


def rank(system: System, ids: Sequence[str], query_ids: Sequence[str], rows: Int64) -> Ranked:
    """Rank a corpus for each query; a query that is in the corpus is not ranked for itself."""
    found: dict[str, Mapping[str, float]] = {}
    for start in range(0, len(query_ids), _QUERIES_PER_CALL):
        some = slice(start, start + _QUERIES_PER_CALL)
        found |= rank_scores(system.score(rows[some]), ids, query_ids[some])
    return found


def rank_scores(
    scores: Float32, ids: Sequence[str], query_ids: Sequence[str], depth: int = DEPTH
) -> Ranked:
    """Rank a corpus by scores Float32[Q, N]; a query that is in it is not ranked for itself."""
    found = {}
    for query, of_query in zip(query_ids, scores, strict=True):
        best = np.argsort(-of_query, kind="stable")[: depth + 1].tolist()
        others = [row for row in best if ids[row] != query][:depth]
        found[query] = {ids[row]: float(of_query[row]) for row in others}
    return found


LEXICAL, HYBRID = "lexical", "hybrid"


def matrix_system(name: str, settings: str, rows: Any, documents: Any) -> System:
    """Make the system of sparse matrices of scipy: the score is the product of two rows.

    Args:
        name: as tables show it.
        settings: describes what the scores depend on.
        rows: of documents, then of queries that are no documents.
        documents: those that are searched, as they are weighed.
    """
    transposed = documents.T.tocsr()

    def score(queries: Int64) -> Float32:
        scores: Float32 = (rows[queries] @ transposed).toarray()
        return scores

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        return row_products(rows[sources], rows[targets])

    return System(name, settings, score, score_pairs)


def row_products(left: Any, right: Any) -> Float32:
    """Return the product Float32[P] of each two rows of sparse matrices [P, terms]."""
    return np.asarray(left.multiply(right).sum(axis=1), dtype=np.float32).ravel()


def lexical_system(
    texts: Sequence[str], titles: Sequence[str] = (), documents: int | None = None
) -> System:
    """Make the system of lexical mode, which here scores every document, not only candidates.

    Args:
        texts: of the documents, then of queries that are no documents.
        titles: of all of them; without titles, only words are compared.
        documents: how many of the texts are documents; all when not given.
    """
    import scipy.sparse

    words = rows_of_texts(texts, titles, documents)
    shape = (len(words), int(words.term_ids.max(initial=0)) + 1)
    unit = scipy.sparse.csr_matrix((words.weights, words.term_ids, np.append(0, words.ends)), shape)
    return matrix_system(
        LEXICAL,
        "cosine of sqrt(count) * idf, of words, pairs of words, and titles that occur",
        unit,
        unit[:documents],
    )


ALIGNED = replace(DEFAULT_ALIGNMENT, budget_seconds=inf, margin=inf)  # however long it takes


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """The searches for one query, of which the scores of all N documents are known.

    Attributes:
        scores: Float32[N] by channel.
        row: of the query.
        blocks: of every row; None to align nothing.
    """

    scores: Mapping[str, Float32]
    row: int
    blocks: Sequence[AlignedBlocks] | None

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Return all documents."""
        return self.score(channels, np.arange(len(self.scores[VECTOR]), dtype=np.int64))

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        """Return documents with their scores in the vector channel and these."""
        scores = {name: self.scores[name][vector_ids] for name in (VECTOR, *channels)}
        return Candidates(vector_ids, scores, exhausted=True)

    def align(self, vector_ids: Int64) -> Float32 | None:
        """Return alignment scores; None without blocks."""
        if self.blocks is None:
            return None
        return align(self.blocks[self.row], [self.blocks[row] for row in vector_ids.tolist()])

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return no words: nothing is shown."""
        return {}

    def common_share(self) -> float:
        """Return 0: common text is not known here."""
        return 0.0


def search_in_memory(
    vectors: System,
    lexical: System | None,
    blocks: Sequence[AlignedBlocks] | None,
    rows: Int64,
    rule: LinearFusion,
    options: AlignmentOptions = ALIGNED,
) -> tuple[Float32, Float32]:
    """Rank the corpus for queries, given as rows, by the ranker of searches.

    Args:
        lexical: of hybrid mode; None for semantic mode.
        blocks: of every row; None to align nothing.

    Returns:
        Scores and alignment scores, Float32[Q, N] each: of the query itself -inf and NaN, and NaN
        of documents that are not aligned.
    """
    channels = {VECTOR: vectors.score(rows)}
    if lexical is not None:
        channels[WORDS] = lexical.score(rows)
    search = SearchOptions(
        top_k=options.candidates,
        mode="semantic" if lexical is None else "hybrid",
        alignment=None if blocks is None else options,
    )
    scores = np.full_like(channels[VECTOR], -inf)
    alignment = np.full_like(scores, np.nan)
    for number, row in enumerate(rows.tolist()):
        known = {name: values[number] for name, values in channels.items()}
        query = Examples((EncodedQuery("", known[VECTOR][:0], vector_id=row),))
        searches = (MemorySearch(known, row, blocks),)
        ranker = Ranker(query, search, rule, searches, {}, alone=True)
        ranking = ranker.rank(search.top_k, None)
        scores[number, ranking.vector_ids] = ranking.scores
        alignment[number, ranking.vector_ids] = ranking.candidates.scores.get(BLOCKS, np.nan)
    return scores, alignment


def search_system(
    vectors: System,
    lexical: System | None,
    blocks: Sequence[AlignedBlocks] | None,
    rule: LinearFusion,
    name: str,
) -> System:
    """Make the system of hybrid mode, or of semantic mode without `lexical`.

    The best candidates of the first stage are aligned, as a search does.
    """
    mode: Mode = "semantic" if lexical is None else "hybrid"
    weight = rule.alignment_weight(mode)
    aligned = blocks if weight else None

    def score(rows: Int64) -> Float32:
        return search_in_memory(vectors, lexical, aligned, rows, rule)[0]

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        scored = channel_scores(vectors, lexical, aligned, np.stack([sources, targets], axis=1))
        return scored.by_mode(rule)[mode].astype(np.float32)

    weights = f"{weight:g} of the alignment score" if aligned else "not aligned"
    words = f"{rule.lexical_weight:g} of the lexical score; " if lexical else ""
    return System(name, f"{words}of the rest, {weights}", score, score_pairs)


_RANDOM_PAIRS = 20_000  # enough for the spread of a channel


def corpus_spreads(
    vectors: System,
    lexical: System | None,
    blocks: Sequence[AlignedBlocks] | None,
    documents: int,
) -> Spreads | None:
    """Measure the channels of a corpus as `longmatch index` does; None if it is too small."""
    if documents < MIN_DOCUMENTS:
        return None
    pairs = sample_pairs(documents, 0, _RANDOM_PAIRS)
    return channel_scores(vectors, lexical, blocks, pairs).spreads()


def channel_scores(
    vectors: System,
    lexical: System | None,
    blocks: Sequence[AlignedBlocks] | None,
    pairs: Int64,
) -> ChannelScores:
    """Score pairs of rows Int64[P, 2] in each channel."""
    sources, targets = pairs.T
    return ChannelScores(
        vectors.score_pairs(sources, targets),
        None if blocks is None else align_pairs(blocks, pairs, lambda _: None),
        None if lexical is None else lexical.score_pairs(sources, targets),
    )


def best_rows(scores: Float32, query: int, number: int) -> Int64:
    """Return the rows of the documents of the highest scores Float32[N], without the query."""
    ranked: Int64 = np.argsort(-scores, kind="stable").astype(np.int64)
    others: Int64 = ranked[ranked != query]
    return others[:number]

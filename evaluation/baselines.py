"""The baselines of an evaluation: alternatives to Longmatch, measured in the same run."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.terms.segmentation import separate_words
from evaluation.block_baselines import CorpusBlocks, chunk_system, first_tokens_system, mean_system
from evaluation.systems import System, vector_system
from index.errors import CorpusError
from index.optional_packages import require_extra

LSA_DIMENSION = 384
_SEED = 0
_K1, _B = 1.5, 0.75


def bm25_system(texts: Sequence[str], documents: int | None = None) -> System:
    """Make BM25 with the whole text as the query, by bm25s.

    Every occurrence of a word in the query counts. A pair is scored in both directions, each score
    divided by the number of words of the query: raw scores grow with it, so that no threshold fits.
    (Of eight variants this was the best on average over three sets of validation pairs.)

    Args:
        texts: of the documents, then of queries that are no documents.
        documents: how many of the texts are documents; all when not given.

    Raises:
        MissingExtraError: bm25s or scipy is not installed.
    """
    require_extra("evaluate", "the baseline bm25", "bm25s", "scipy")
    import bm25s
    import scipy.sparse

    separated = [separate_words(text) for text in texts]
    tokens = bm25s.tokenize(separated, stopwords="english", show_progress=False)
    words = len(tokens.vocab)
    number = len(texts) if documents is None else documents
    # BM25 of a word in a document needs no query: the index holds it as a matrix [N, words].
    engine = bm25s.BM25(method="lucene", k1=_K1, b=_B)
    engine.index((tokens.ids[:number], tokens.vocab), show_progress=False)
    parts = engine.scores
    weights = scipy.sparse.csc_matrix(
        (parts["data"], parts["indices"], parts["indptr"]), shape=(number, words)
    ).tocsr()
    counts = _count_words(tokens.ids, words)
    lengths = np.maximum(np.asarray(counts.sum(axis=1), dtype=np.float32).ravel(), np.float32(1))

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        there = _row_products(counts[sources], weights[targets]) / lengths[sources]
        back = _row_products(counts[targets], weights[sources]) / lengths[targets]
        both: Float32 = np.add(there, back, dtype=np.float32)
        return both

    settings = f"bm25s, lucene, k1 {_K1}, b {_B}, its English stop words, whole text as the query"
    return System("bm25", settings, _products(counts, weights), score_pairs)


def tfidf_system(matrix: Any, documents: int | None = None) -> System:
    """Make the system of the rows of `tfidf_matrix`; the first `documents` rows are documents."""

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        return _row_products(matrix[sources], matrix[targets])

    return System(
        "tfidf",
        "scikit-learn, sublinear tf, without English stop words, min_df 2, max_df 0.5, whole text",
        _products(matrix, matrix[:documents]),
        score_pairs,
    )


def lsa_system(matrix: Any, documents: int | None = None) -> System:
    """Make the system of LSA vectors, fitted on the documents among the rows of `tfidf_matrix`.

    Raises:
        CorpusError: there are fewer than three documents or words.
    """
    from sklearn.decomposition import TruncatedSVD

    corpus = matrix[:documents]
    dimension = min(LSA_DIMENSION, min(corpus.shape) - 1)
    if dimension < 2:
        raise CorpusError("LSA needs a corpus of at least three documents and three words")
    vectors = TruncatedSVD(dimension, random_state=_SEED).fit(corpus).transform(matrix)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32 = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
    settings = f"TruncatedSVD of that TF-IDF, {dimension} dimensions, fitted on the corpus itself"
    return vector_system("lsa", settings, unit, documents)


def tfidf_matrix(texts: Sequence[str], documents: int | None = None) -> Any:
    """Return TF-IDF by scikit-learn, sparse float32[N + others, words], rows of unit norm.

    Args:
        texts: of the documents, then of queries that are no documents.
        documents: N, how many of the texts are documents; words and weights come from these.

    Raises:
        CorpusError: no word is in two documents and in at most half of them.
        MissingExtraError: scikit-learn is not installed.
    """
    require_extra("evaluate", "TF-IDF", "sklearn")
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        sublinear_tf=True, stop_words="english", min_df=2, max_df=0.5, dtype=np.float32
    )
    separated = [separate_words(text) for text in texts]
    try:
        vectorizer.fit(separated[:documents])
    except ValueError as error:
        raise CorpusError(
            "TF-IDF: no word is in two documents and in at most half of them"
        ) from error
    return vectorizer.transform(separated)


def _count_words(ids: Sequence[Sequence[int]], words: int) -> Any:
    import scipy.sparse

    ends = np.cumsum([0, *map(len, ids)])
    columns = np.fromiter((word for one in ids for word in one), dtype=np.int32, count=ends[-1])
    ones = np.ones(len(columns), dtype=np.float32)
    counts = scipy.sparse.csr_matrix((ones, columns, ends), shape=(len(ids), words))
    counts.sum_duplicates()
    return counts


def _products(queries: Any, documents: Any) -> Any:
    transposed = documents.T.tocsr()

    def score(rows: Int64) -> Float32:
        scores: Float32 = (queries[rows] @ transposed).toarray()
        return scores

    return score


def _row_products(left: Any, right: Any) -> Float32:
    sums = left.multiply(right).sum(axis=1)
    return np.asarray(sums, dtype=np.float32).ravel()


LEXICAL_BASELINES = ("bm25", "tfidf", "lsa")
BLOCK_BASELINES = {"mean": mean_system, "chunks": chunk_system, "first512": first_tokens_system}
BASELINES = (*LEXICAL_BASELINES, *BLOCK_BASELINES)


def parse_baselines(text: str) -> tuple[str, ...]:
    """Parse names of baselines, separated by commas, or `all`.

    Raises:
        CorpusError: a name is unknown.
    """
    if text.strip() == "all":
        return BASELINES
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in BASELINES:
            known = ", ".join(BASELINES)
            raise CorpusError(f"there is no {name!r}, only {known}, and 'all' of them")
    return names


def lexical_baselines(
    names: Sequence[str], texts: Sequence[str], documents: int | None = None
) -> Iterator[System]:
    """Make the named baselines that use words.

    Args:
        names: of baselines.
        texts: of the documents, then of queries that are no documents.
        documents: how many of the texts are documents; all when not given.

    Raises:
        CorpusError: the corpus is too small.
        MissingExtraError: a library of a baseline is not installed.
    """
    if "bm25" in names:
        yield bm25_system(texts, documents)
    if "tfidf" in names or "lsa" in names:
        matrix = tfidf_matrix(texts, documents)
        if "tfidf" in names:
            yield tfidf_system(matrix, documents)
        if "lsa" in names:
            yield lsa_system(matrix, documents)


def block_baselines(names: Sequence[str], blocks: CorpusBlocks) -> Iterator[System]:
    """Make the named baselines that use block vectors of the corpus."""
    for name, make in BLOCK_BASELINES.items():
        if name in names:
            yield make(blocks)

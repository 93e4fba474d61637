"""The baselines of an evaluation: alternatives to Longmatch, measured in the same run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.terms.segmentation import separate_words
from evaluation.encoded_corpus import EncodedCorpus
from evaluation.systems import System, matrix_system, row_products, vector_system
from index.errors import CorpusError

# About 512 tokens: the best of 2, 4 and 8 blocks on the validation queries of a corpus.
CHUNK_BLOCKS = 8
FIRST_TOKENS = 512
_CHUNKS_PER_CALL = 128


def mean_system(blocks: EncodedCorpus) -> System:
    """Make the system of the mean of all block vectors of each document."""
    vectors = mean_vectors(blocks, blocks.sizes)
    return vector_system("mean", "mean of the block vectors of the whole document", vectors)


def first_tokens_system(blocks: EncodedCorpus, tokens: int = FIRST_TOKENS) -> System:
    """Make the system of the mean of the block vectors within the first `tokens` tokens."""
    vectors = mean_vectors(blocks, blocks_within(blocks, tokens))
    settings = f"mean of the block vectors of the first {tokens} tokens"
    return vector_system(f"first{tokens}", settings, vectors)


def mean_vectors(blocks: EncodedCorpus, counts: Int64) -> Float32:
    """Average the first `counts` Int64[N] block vectors of each document; unit norm.

    A document without blocks gets zeros.
    """
    means = np.zeros((len(counts), blocks.archive.key.block_dimension), dtype=np.float32)
    for row, (vectors, count) in enumerate(zip(blocks.vectors(), counts, strict=True)):
        if count:
            means[row] = vectors[:count].mean(0)
    return _unit(means)


def blocks_within(blocks: EncodedCorpus, tokens: int) -> Int64:
    """Count the blocks of each document that end within its first tokens; at least one."""
    texts = map(blocks.archive.blocks, blocks.rows.tolist())
    ends = (np.cumsum([len(block) for block in text]) for text in texts)
    last = np.array([np.searchsorted(some, tokens, side="right") for some in ends])
    within: Int64 = np.minimum(np.maximum(last, 1), blocks.sizes)
    return within


def maxsim_system(blocks: EncodedCorpus) -> System:
    """Make the system of late interaction over blocks: chunks of a single block, not corrected."""
    return chunk_system(blocks, "maxsim", 1)


def chunk_system(
    blocks: EncodedCorpus, name: str = "chunks", chunk_blocks: int = CHUNK_BLOCKS
) -> System:
    """Make the system of a chunking engine: every chunk of the query searches all chunks.

    A chunk is the mean of `chunk_blocks` consecutive block vectors. The score of a document is the
    mean, over the chunks of the query, of the cosine with its best chunk; the score of a pair is
    the mean of both directions. The search is exact.
    """
    chunks, ends = _chunks(blocks, chunk_blocks)
    starts = np.concatenate([[0], ends[:-1]])
    filled = np.flatnonzero(ends > starts)  # reduceat accepts no empty range

    def best(rows: Int64) -> Float32:
        found = np.zeros((len(rows), len(ends)), dtype=np.float32)
        for number, row in enumerate(rows):
            found[number, filled] = _mean_of_best(
                chunks[starts[row] : ends[row]], chunks, starts[filled]
            )
        return found

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        scores = np.zeros(len(sources), dtype=np.float32)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            cosines = (
                chunks[starts[source] : ends[source]] @ chunks[starts[target] : ends[target]].T
            )
            if cosines.size:
                scores[number] = (cosines.max(0).mean() + cosines.max(1).mean()) / 2
        return scores

    settings = (
        f"chunks of {chunk_blocks} blocks, mean over the query's chunks of the cosine with the "
        "best chunk of the document, exact search"
    )
    return System(name, settings, best, score_pairs)


def _mean_of_best(query: Float32, chunks: Float32, starts: Int64) -> Float32:
    total = np.zeros(len(starts), dtype=np.float32)
    for first in range(0, len(query), _CHUNKS_PER_CALL):
        cosines = query[first : first + _CHUNKS_PER_CALL] @ chunks.T  # [q, chunks]
        total += np.maximum.reduceat(cosines, starts, axis=1).sum(0)
    return total / np.float32(max(len(query), 1))


def _chunks(blocks: EncodedCorpus, chunk_blocks: int) -> tuple[Float32, Int64]:
    width = blocks.archive.key.block_dimension
    chunks = [np.zeros((0, width), dtype=np.float32)]
    for vectors in blocks.vectors():
        firsts = np.arange(0, len(vectors), chunk_blocks)
        chunks.append(np.add.reduceat(vectors, firsts, axis=0) if len(vectors) else vectors)
    ends = np.cumsum([len(some) for some in chunks[1:]], dtype=np.int64)
    return _unit(np.concatenate(chunks)), ends


def _unit(vectors: Float32) -> Float32:
    unit: Float32 = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


LSA_DIMENSION = 384
_SEED = 0


@dataclass(frozen=True, slots=True)
class BM25Settings:
    """The parameters of BM25 (Robertson and Zaragoza, 2009, sections 3.4 and 3.4.3).

    Attributes:
        k1: saturation of the counts in a document.
        b: share of the normalisation by length.
        k3: saturation of the counts in the query; without it, every occurrence counts.
    """

    k1: float
    b: float
    k3: float | None = None


# The usual settings are for short queries; the others are the best found for whole documents.
BM25_SETTINGS = {"bm25": BM25Settings(1.5, 0.75), "bm25-long": BM25Settings(3.0, 1.0, 8.0)}


def bm25_system(texts: Sequence[str], documents: int | None = None, name: str = "bm25") -> System:
    """Make BM25 with the whole text as the query, by bm25s.

    A pair is scored in both directions, each score
    divided by the number of words of the query: raw scores grow with it, so that no threshold fits.
    (Of eight variants this was the best on average over three sets of validation pairs.)

    Args:
        texts: of the documents, then of queries that are no documents.
        documents: how many of the texts are documents; all when not given.
        name: of `BM25_SETTINGS`.
    """
    import bm25s
    import scipy.sparse

    chosen = BM25_SETTINGS[name]
    separated = [separate_words(text) for text in texts]
    tokens = bm25s.tokenize(separated, stopwords="english", show_progress=False)
    words = len(tokens.vocab)
    number = len(texts) if documents is None else documents
    # BM25 of a word in a document needs no query: the index holds it as a matrix [N, words].
    engine = bm25s.BM25(method="lucene", k1=chosen.k1, b=chosen.b)
    engine.index((tokens.ids[:number], tokens.vocab), show_progress=False)
    parts = engine.scores
    weights = scipy.sparse.csc_matrix(
        (parts["data"], parts["indices"], parts["indptr"]), shape=(number, words)
    ).tocsr()
    counts = _count_words(tokens.ids, words)
    lengths = np.maximum(np.asarray(counts.sum(axis=1), dtype=np.float32).ravel(), np.float32(1))
    if chosen.k3 is not None:
        counts.data *= (chosen.k3 + 1) / (chosen.k3 + counts.data)

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        there = row_products(counts[sources], weights[targets]) / lengths[sources]
        back = row_products(counts[targets], weights[sources]) / lengths[targets]
        both: Float32 = np.add(there, back, dtype=np.float32)
        return both

    saturated = "" if chosen.k3 is None else f", k3 {chosen.k3}"
    settings = (
        f"bm25s, lucene, k1 {chosen.k1}, b {chosen.b}{saturated}, its English stop words, "
        "whole text as the query"
    )
    system = matrix_system(name, settings, counts, weights)
    return replace(system, score_pairs=score_pairs)


def tfidf_system(matrix: Any, documents: int | None = None, name: str = "tfidf") -> System:
    """Make the system of the rows of `tfidf_matrix`; the first `documents` rows are documents."""

    terms = "words and pairs" if name == TFIDF_OF_PAIRS else "words"
    settings = (
        f"scikit-learn{terms}, sublinear tf, without English stop words, min_df 2, max_df 0.5, "
        "whole text"
    )
    return matrix_system(name, settings, matrix, matrix[:documents])


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


def tfidf_matrix(texts: Sequence[str], documents: int | None = None, *, pairs: bool = False) -> Any:
    """Return TF-IDF by scikit-learn, sparse float32[N + others, words], rows of unit norm.

    Args:
        texts: of the documents, then of queries that are no documents.
        documents: N, how many of the texts are documents; words and weights come from these.
        pairs: count pairs of neighbouring words as well.

    Raises:
        CorpusError: no word is in two documents and in at most half of them.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        sublinear_tf=True,
        stop_words="english",
        min_df=2,
        max_df=0.5,
        dtype=np.float32,
        ngram_range=(1, 2 if pairs else 1),
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
    columns = np.fromiter(
        (word for document in ids for word in document), dtype=np.int32, count=ends[-1]
    )
    ones = np.ones(len(columns), dtype=np.float32)
    counts = scipy.sparse.csr_matrix((ones, columns, ends), shape=(len(ids), words))
    counts.sum_duplicates()
    return counts


TFIDF_OF_PAIRS = "tfidf-pairs"
LEXICAL_BASELINES = (*BM25_SETTINGS, "tfidf", TFIDF_OF_PAIRS, "lsa")
BLOCK_BASELINES: dict[str, Callable[[EncodedCorpus], System]] = {
    "mean": mean_system,
    "chunks": chunk_system,
    "maxsim": maxsim_system,
    "first512": first_tokens_system,
}
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
    """Make the named baselines that use words."""
    for name in BM25_SETTINGS:
        if name in names:
            yield bm25_system(texts, documents, name)
    if "tfidf" in names or "lsa" in names:
        matrix = tfidf_matrix(texts, documents)
        if "tfidf" in names:
            yield tfidf_system(matrix, documents)
        if "lsa" in names:
            yield lsa_system(matrix, documents)
    if TFIDF_OF_PAIRS in names:
        yield tfidf_system(tfidf_matrix(texts, documents, pairs=True), documents, TFIDF_OF_PAIRS)

"""The lexical and the hybrid mode as systems of an evaluation."""

from collections.abc import Sequence

import numpy as np

from index.errors import CorpusError
from index.fusion import FusionRule, fuse
from index.lexical_query import inverse_document_frequencies
from index.systems import System
from index.title_terms import count_corpus
from index.vector_index import Float32, Int64

LEXICAL, HYBRID = "lexical", "hybrid"


def lexical_system(
    texts: Sequence[str], titles: Sequence[str] = (), documents: int | None = None
) -> System:
    """Make the score of lexical mode, of every document rather than of candidates.

    A word that one document has counts for nothing, as when the query is a stored document.

    Args:
        texts: of the documents, then of queries that are none.
        titles: of all of them; without any, words alone are compared.
        documents: how many of the texts are documents; all when not given.

    Raises:
        CorpusError: the extra `evaluate` is not installed.
    """
    try:
        import scipy.sparse
    except ImportError as error:
        raise CorpusError(
            "evaluation needs the extra 'evaluate': pip install 'longmatch[evaluate]'"
        ) from error
    number = len(texts) if documents is None else documents
    columns: dict[str, int] = {}
    places: list[int] = []
    counts: list[int] = []
    ends = [0]
    for counted in count_corpus(texts, titles, number):
        places += [columns.setdefault(term, len(columns)) for term in counted]
        counts += counted.values()
        ends.append(len(places))
    shape = (len(texts), len(columns))
    roots = np.sqrt(np.array(counts, dtype=np.float32))
    matrix = scipy.sparse.csr_matrix((roots, places, ends), shape=shape)
    having = np.bincount(places[: ends[number]], minlength=len(columns))
    idf = inverse_document_frequencies(having, number) * (having >= 2)
    weighted = matrix @ scipy.sparse.diags(idf)
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    unit = (scipy.sparse.diags(1.0 / np.maximum(norms, 1e-12)) @ weighted).tocsr()
    unit = unit.astype(np.float32)
    transposed = unit[:number].T.tocsr()

    def score(rows: Int64) -> Float32:
        scores: Float32 = (unit[rows] @ transposed).toarray()
        return scores

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        sums = unit[sources].multiply(unit[targets]).sum(axis=1)
        return np.asarray(sums, dtype=np.float32).ravel()

    return System(
        LEXICAL, "cosine of sqrt(count) * idf, words and titles named", score, score_pairs
    )


def hybrid_system(semantic: System, lexical: System, rule: FusionRule) -> System:
    """Make the score of hybrid mode from those of the two channels."""

    def score(rows: Int64) -> Float32:
        return fuse(rule, semantic.score(rows), lexical.score(rows))

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        both = (system.score_pairs(sources, targets) for system in (semantic, lexical))
        return fuse(rule, *both)

    return System(HYBRID, f"{rule.lexical:g} of the lexical score", score, score_pairs)

"""The anchors of an evaluation: what a user has without Longmatch, measured in the same run."""

from collections.abc import Iterator, Sequence

from index.block_anchors import CorpusBlocks, chunk_system, first_tokens_system, mean_system
from index.errors import CorpusError
from index.lexical_anchors import bm25_system, lsa_system, tfidf_matrix, tfidf_system
from index.systems import System

LEXICAL = ("bm25", "tfidf", "lsa")
OF_BLOCKS = {"mean": mean_system, "chunks": chunk_system, "first512": first_tokens_system}
ANCHORS = (*LEXICAL, *OF_BLOCKS)


def parse_anchors(text: str) -> tuple[str, ...]:
    """Read names with commas between them, or `all`.

    Raises:
        CorpusError: an unknown name.
    """
    if text.strip() == "all":
        return ANCHORS
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in ANCHORS:
            known = ", ".join(ANCHORS)
            raise CorpusError(f"anchors: there is no {name!r}, only {known}, and 'all' for them")
    return names


def lexical_anchors(
    names: Sequence[str], texts: Sequence[str], documents: int | None = None
) -> Iterator[System]:
    """Make those of the named anchors that read words.

    Args:
        names: of anchors.
        texts: of the documents, then of queries that are none.
        documents: how many of the texts are documents; all when not given.

    Raises:
        CorpusError: the extra `evaluate` is not installed, or the corpus is too small.
    """
    if "bm25" in names:
        yield bm25_system(texts, documents)
    if "tfidf" in names or "lsa" in names:
        matrix = tfidf_matrix(texts, documents)
        if "tfidf" in names:
            yield tfidf_system(matrix, documents)
        if "lsa" in names:
            yield lsa_system(matrix, documents)


def block_anchors(names: Sequence[str], blocks: CorpusBlocks) -> Iterator[System]:
    """Make those of the named anchors that read block vectors of the corpus."""
    for name, make in OF_BLOCKS.items():
        if name in names:
            yield make(blocks)

"""Ways to choose the sentence blocks that the Transformer reads, by the words of a document.

Each gets a document as the features of its blocks and the number of blocks to choose, and returns
their positions in reading order. The first block is always among them: the document level reads it
by itself as well.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from encoder.alignment.space import at_equal_distances
from encoder.arrays import Float32, Int64
from encoder.block_selection import cover
from encoder.reranker.sentence_ranking import page_rank

RELEVANCE = 0.5  # of maximal marginal relevance, against the similarity with chosen blocks


@dataclass(frozen=True, slots=True)
class BlockWords:
    """The words of the S sentence blocks of a document.

    Attributes:
        features: Float32[S, D], TF-IDF of each block by feature hashing, unit norm.
        rarity: Float32[S], inverse document frequencies of its different words, summed.
        tokens: Int64[S].
    """

    features: Float32
    rarity: Float32
    tokens: Int64

    def __len__(self) -> int:
        return len(self.tokens)


Chooser = Callable[[BlockWords, int], Int64]


def first_blocks(words: BlockWords, number: int) -> Int64:
    """Choose the beginning of the document."""
    return np.arange(min(number, len(words)), dtype=np.int64)


def evenly_spaced(words: BlockWords, number: int) -> Int64:
    """Choose blocks at equal distances."""
    return at_equal_distances(len(words), number)


def rare_words(words: BlockWords, number: int) -> Int64:
    """Choose the blocks whose different words are rarest, by token (summed idf)."""
    return _best(words.rarity / np.maximum(words.tokens, 1), number)


def text_rank(words: BlockWords, number: int) -> Int64:
    """Choose the blocks with the highest PageRank in the graph of shared words (TextRank)."""
    graph = np.maximum(words.features @ words.features.T, 0.0)
    np.fill_diagonal(graph, 0.0)
    return _best(page_rank(graph), number)


def centroid(words: BlockWords, number: int) -> Int64:
    """Choose the blocks that resemble the whole document most."""
    return _best(_relevance(words), number)


def marginal_relevance(words: BlockWords, number: int) -> Int64:
    """Choose by maximal marginal relevance (Carbonell and Goldstein, 1998).

    The next block resembles the document most, less its likeness to the chosen one nearest to it.
    """
    relevance = RELEVANCE * _relevance(words)
    chosen = [0]
    nearest = words.features @ words.features[0]
    while len(chosen) < min(number, len(words)):
        scores = relevance - (1.0 - RELEVANCE) * nearest
        scores[chosen] = -np.inf
        chosen.append(int(scores.argmax()))
        np.maximum(nearest, words.features @ words.features[chosen[-1]], out=nearest)
    return np.sort(np.array(chosen, dtype=np.int64))


def facility_location(words: BlockWords, number: int) -> Int64:
    """Choose blocks so that every block has one that resembles it, as Longmatch selects them."""
    return cover(words.features, min(number, len(words)))


def weighted_facility_location(words: BlockWords, number: int) -> Int64:
    """As `facility_location`, where blocks of rare words weigh more."""
    similarities = np.maximum(words.features @ words.features.T, 0.0)
    chosen = [0]
    nearest = similarities[0].copy()
    while len(chosen) < min(number, len(words)):
        gains = words.rarity @ np.maximum(similarities - nearest[:, None], 0.0)
        gains[chosen] = -1.0
        chosen.append(int(gains.argmax()))
        np.maximum(nearest, similarities[chosen[-1]], out=nearest)
    return np.sort(np.array(chosen, dtype=np.int64))


CHOOSERS: Mapping[str, Chooser] = {
    "first": first_blocks,
    "even": evenly_spaced,
    "rare words": rare_words,
    "TextRank": text_rank,
    "centroid": centroid,
    "marginal relevance": marginal_relevance,
    "facility location": facility_location,
    "weighted facility location": weighted_facility_location,
}


def _relevance(words: BlockWords) -> Float32:
    """Return the cosine [S] of each block with the mean of all."""
    mean = words.features.mean(axis=0)
    cosines: Float32 = words.features @ (mean / max(float(np.linalg.norm(mean)), 1e-9))
    return cosines


def _best(scores: Float32, number: int) -> Int64:
    """Return the first block and the best of the others; of equal ones the earlier is better."""
    ranked = scores.astype(np.float64)
    ranked[0] = np.inf
    return np.sort(np.argsort(-ranked, kind="stable")[:number]).astype(np.int64)

"""Sentence ranking: the sentence-level noise filter of Match-Ignition (section 3.1), in NumPy.

The sentences of both texts are the nodes of one graph, so that each text decides what is noise in
the other. Edges are TextRank's similarity (equation 1), ranks those of PageRank (equation 6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.payload import blank_payload
from encoder.sentences import split_sentences
from encoder.terms.function_words import function_words
from encoder.terms.segmentation import words_of

DAMPING = 0.85  # d of the paper
_ITERATIONS = 50
_TOLERANCE = 1e-5  # of all ranks together, which sum to 1
_FREQUENT = 24  # sentences; words of more are counted by a matrix product, of fewer pair by pair


@dataclass(frozen=True, slots=True)
class SentenceGraphText:
    """A text split for sentence ranking.

    Attributes:
        text: the whole text.
        spans: (start, end) characters of each of its S sentences.
        words: the different words of each sentence, function words left out.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    words: tuple[tuple[str, ...], ...]

    def sentence(self, number: int) -> str:
        """Return one sentence."""
        start, end = self.spans[number]
        return self.text[start:end]


def split_for_ranking(text: str, *, language: str = "en", most: int = 500) -> SentenceGraphText:
    """Split a text into sentences, of which the first `most` are ranked, and words."""
    readable, _ = blank_payload(text)
    kept = tuple(islice(split_sentences(readable, language), most))
    words = [dict.fromkeys(words_of(readable[start:end])) for start, end in kept]
    left_out = function_words(set().union(*words))
    content = (tuple(word for word in some if word not in left_out) for some in words)
    return SentenceGraphText(text, kept, tuple(content))


def rank_sentences(first: SentenceGraphText, second: SentenceGraphText) -> tuple[Float32, Float32]:
    """Return the PageRank of the sentences of two texts in the graph of both: all sum to 1."""
    ranks = page_rank(similarities([*first.words, *second.words]))
    return ranks[: len(first.words)], ranks[len(first.words) :]


def similarities(sentences: Sequence[Sequence[str]]) -> Float32:
    """Return TextRank's similarity of sentences (equation 1), Float32[S, S], diagonal 0.

    Sim(i, j) = |words of both| / (log |i| + log |j|), where |i| counts content words. Two
    sentences of a single word have no similarity: the formula would divide by zero. Sentences are
    given as their different words.
    """
    sizes = np.array([len(words) for words in sentences], dtype=np.float32)
    logarithms = np.log(np.maximum(sizes, 1.0))
    common = _common_words(sentences)
    lengths = logarithms[:, None] + logarithms[None, :]
    np.fill_diagonal(common, 0.0)
    found: Float32 = np.divide(common, lengths, out=np.zeros_like(common), where=lengths > 0)
    return found


def page_rank(weights: Float32) -> Float32:
    """Return the PageRank (equation 6) of N nodes with edges Float32[N, N]; it sums to 1.

    A node shares its rank among its neighbours by the weights of the edges; one without an edge
    has the (1 - d) / N that every node has.
    """
    number = len(weights)
    if number == 0:
        return np.empty(0, dtype=np.float32)
    sums = weights.sum(1)
    shares = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
    ranks = np.full(number, 1.0 / number, dtype=np.float32)
    for _ in range(_ITERATIONS):
        former = ranks
        ranks = DAMPING * (weights @ (former * shares)) + np.float32((1.0 - DAMPING) / number)
        if np.abs(ranks - former).sum() < _TOLERANCE:
            break
    normed: Float32 = ranks / ranks.sum()
    return normed


def _common_words(sentences: Sequence[Sequence[str]]) -> Float32:
    """Return how many words each pair of sentences shares, Float32[S, S].

    Rare words, which are the majority, are counted by their lists of sentences; the few frequent
    ones, whose lists have too many pairs, by the product of a matrix with itself.
    """
    number = len(sentences)
    numbers: dict[str, int] = {}
    words = [numbers.setdefault(word, len(numbers)) for words in sentences for word in words]
    columns = np.array(words, dtype=np.int64)
    rows = np.repeat(np.arange(number), [len(words) for words in sentences])
    counts = np.bincount(columns, minlength=len(numbers))
    frequent = np.flatnonzero(counts > _FREQUENT)
    common = _pairs_of_rare(rows, columns, counts, number)
    if len(frequent):
        place = np.full(len(numbers), -1, dtype=np.int64)
        place[frequent] = np.arange(len(frequent))
        chosen = place[columns] >= 0
        having = np.zeros((number, len(frequent)), dtype=np.float32)
        having[rows[chosen], place[columns[chosen]]] = 1.0
        common += having @ having.T
    return common


def _pairs_of_rare(rows: Int64, columns: Int64, counts: Int64, number: int) -> Float32:
    """Count the pairs of sentences that each rare word makes."""
    chosen = counts[columns] <= _FREQUENT
    order = np.argsort(columns[chosen], kind="stable")
    rows, columns = rows[chosen][order], columns[chosen][order]
    sizes = counts[columns]  # of the list that each entry stands in
    begins = np.searchsorted(columns, columns)
    # each entry meets every entry of its own list
    left = np.repeat(rows, sizes)
    steps = np.arange(len(left)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    right = rows[np.repeat(begins, sizes) + steps]
    pairs = np.bincount(left * number + right, minlength=number * number)
    return pairs.reshape(number, number).astype(np.float32)

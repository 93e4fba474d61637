"""Synthetic articles: texts with the word frequencies of English, and clustered block vectors.

An article is about one of `TOPICS` topics. A word is a stop word, a word of the whole vocabulary, a
word of the topic, or the usual successor of the word before it, so that documents share pairs of
words; within each list, frequencies follow Zipf's law. With these shares an article has as many
different words and pairs as one of the Wikipedia of equal length. Block vectors are points around
the topic and the document, in a space of few dimensions.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import SEED
from encoder.alignment.space import fit_space, sample_blocks
from encoder.arrays import Float32, Float64, Int64
from encoder.blocks import Receipt
from encoder.terms.function_words import ENGLISH
from index.directory.data_directory import open_data_directory
from index.document import Document
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument

TOPICS = 500
VOCABULARY = 60_000
TOPIC_WORDS = 1_000
STOP_SHARE, TOPIC_SHARE, SUCCESSOR_SHARE = 0.48, 0.15, 0.12
WORDS_A_BLOCK = 42
MEDIAN_BLOCKS, BLOCKS_SIGMA, MOST_BLOCKS = 60, 0.5, 400  # of a logarithmic normal distribution
LATENT = 64
SAMPLED = 1_000  # documents that the alignment space is fitted to, none of them in the store
PUT_TOGETHER = 200
TOPIC_SPREAD, DOCUMENT_SPREAD, BLOCK_SPREAD = 1.0, 0.7, 1.0
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"


@dataclass(frozen=True, slots=True, eq=False)
class ArticleModel:
    """What articles are drawn from.

    Attributes:
        seed: of all draws.
        words: the vocabulary, stop words first, the most frequent first.
        topics: Int64[TOPICS, TOPIC_WORDS], words of each topic.
        successors: Int64[V], the usual successor of each word.
        centres: Float32[TOPICS, LATENT].
        of_blocks: Float32[LATENT, H], embeds a point in as many dimensions as a block vector has.
        of_documents: Float32[LATENT, dimension], the same for a document vector.
    """

    seed: int
    words: NDArray[np.str_]
    topics: Int64
    successors: Int64
    centres: Float32
    of_blocks: Float32
    of_documents: Float32

    def article(self, number: int) -> EncodedDocument:
        """Draw an article; the same number gives the same one."""
        chance = np.random.default_rng([self.seed, number])
        topic = int(chance.integers(TOPICS))
        blocks = round(MEDIAN_BLOCKS * float(np.exp(BLOCKS_SIGMA * chance.standard_normal())))
        blocks = min(max(blocks, 1), MOST_BLOCKS)
        size = blocks * WORDS_A_BLOCK
        text = " ".join(self.words[self._words(chance, topic, size)].tolist())
        ends = np.linspace(0, len(text), blocks + 1).astype(np.int64)
        vector, vectors = self._vectors(chance, topic, blocks)
        return EncodedDocument(
            Document(f"article{number}", text, f"Number {number}"),
            vector,
            Receipt(size, size, blocks, 0, size),
            BlockVectors(np.stack([ends[:-1], ends[1:]], axis=1), vectors),
        )

    def _words(self, chance: np.random.Generator, topic: int, size: int) -> Int64:
        words = len(ENGLISH) + _zipf(chance, len(self.words) - len(ENGLISH), size)
        kind = chance.random(size)
        words = np.where(kind < STOP_SHARE, _zipf(chance, len(ENGLISH), size), words)
        of_topic = (kind >= STOP_SHARE) & (kind < STOP_SHARE + TOPIC_SHARE)
        words[of_topic] = self.topics[topic, _zipf(chance, TOPIC_WORDS, int(of_topic.sum()))]
        follows = np.flatnonzero(kind[1:] >= 1.0 - SUCCESSOR_SHARE) + 1
        words[follows] = self.successors[words[follows - 1]]
        return words

    def _vectors(
        self, chance: np.random.Generator, topic: int, blocks: int
    ) -> tuple[Float32, Float32]:
        centre = TOPIC_SPREAD * self.centres[topic]
        centre = centre + DOCUMENT_SPREAD * chance.standard_normal(LATENT, dtype=np.float32)
        noise = chance.standard_normal((blocks, LATENT), dtype=np.float32)
        points = centre + BLOCK_SPREAD * noise
        return unit(points.mean(axis=0) @ self.of_documents), unit(points @ self.of_blocks)


def article_model(seed: int, block_dimension: int, dimension: int) -> ArticleModel:
    """Draw a model of articles with block vectors [., block_dimension] and vectors [dimension]."""
    chance = np.random.default_rng(seed)
    words = np.array([*sorted(ENGLISH), *_invented_words()])
    first = len(ENGLISH)
    return ArticleModel(
        seed=seed,
        words=words,
        topics=chance.integers(first, len(words), (TOPICS, TOPIC_WORDS)),
        successors=np.append(
            np.arange(first) + 1,  # of a stop word, so that such a pair is no term
            first + _zipf(chance, len(words) - first, len(words) - first),
        ),
        centres=chance.standard_normal((TOPICS, LATENT), dtype=np.float32),
        of_blocks=chance.standard_normal((LATENT, block_dimension), dtype=np.float32),
        of_documents=chance.standard_normal((LATENT, dimension), dtype=np.float32),
    )


def unit(vectors: Float32) -> Float32:
    """Scale vectors [..., D] to unit norm."""
    scaled: Float32 = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled.astype(np.float32)


def _zipf(chance: np.random.Generator, count: int, size: int) -> Int64:
    """Draw `size` ranks from 0 to `count` - 1, with a frequency of about 1 / (rank + 1)."""
    draws: Float64 = (count + 1) ** chance.random(size)
    return np.minimum(draws.astype(np.int64) - 1, count - 1)


def _invented_words() -> list[str]:
    """Return words of syllables, short ones first, none of them a stop word."""
    syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
    words = syllables + [syllable + other for syllable in syllables for other in syllables]
    words += [word + end for word in words[len(syllables) :] for end in syllables[:6]]
    return [word for word in words if word not in ENGLISH][:VOCABULARY]


def put_articles(store: DocumentStore, model: ArticleModel, size: int) -> None:
    """Put `article0`, `article1` … into a store."""
    for start in range(0, size, PUT_TOGETHER):
        numbers = range(start, min(start + PUT_TOGETHER, size))
        store.put([model.article(number) for number in numbers])


def store_articles(
    path: Path, size: int, fingerprint: str, *, dimension: int, block_dimension: int
) -> None:
    """Fill a new data directory with articles and an alignment space, without families."""
    model = article_model(SEED, block_dimension, dimension)
    sampled = (model.article(10**6 + number).blocks for number in range(SAMPLED))
    space = fit_space(sample_blocks([blocks.vectors for blocks in sampled if blocks is not None]))
    with closing(
        open_data_directory(path, fingerprint=fingerprint, dimension=dimension, find_families=False)
    ) as data:
        data.store.alignment.start_with(space)
        put_articles(data.store, model, size)
        data.store.lexical.refresh_titles(SilentProgress())
        data.index.rebuild()
        data.store.lexical.publish()

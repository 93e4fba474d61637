import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from encoder.arrays import Float32
from evaluation.baselines import (
    BASELINES,
    CHUNK_BLOCKS,
    LEXICAL_BASELINES,
    blocks_within,
    chunk_system,
    first_tokens_system,
    lexical_baselines,
    maxsim_system,
    mean_system,
    parse_baselines,
)
from evaluation.block_archive import ArchiveKey, BlockArchive
from evaluation.encoded_corpus import EncodedCorpus
from evaluation.systems import System
from index.errors import CorpusError

TEXTS = [
    *("river water river flows valley", "water flows through valley stones"),
    *("violin music concert hall", "music concert river hall piano", "piano violin stones and the"),
]
KEY = ArchiveKey("a", "b", 16, "split", "en", 64, 8, "uint16")


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def unit_blocks(count: int, seed: int = 0) -> Float32:
    vectors = np.random.default_rng(seed).standard_normal((count, 8), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def corpus_blocks(sizes: list[int], tokens: int = 10) -> EncodedCorpus:
    ends = np.cumsum(sizes)
    vectors = np.split(unit_blocks(int(ends[-1])).astype(np.float16), ends[:-1])
    many = np.array(sizes)
    texts = [((7,) * tokens,) * size for size in sizes]
    archive = BlockArchive(KEY, many, many, texts.__getitem__, vectors.__getitem__)
    ids = tuple(f"d{row}" for row in range(len(sizes)))
    return EncodedCorpus(ids, np.arange(len(sizes)), ids, archive, skipped=0)


def test_names() -> None:
    assert parse_baselines("") == ()
    assert parse_baselines("lsa, bm25,lsa") == ("lsa", "bm25")
    assert parse_baselines("all") == BASELINES
    with pytest.raises(CorpusError, match="there is no 'bm42', only bm25, bm25-long, tfidf"):
        parse_baselines("bm25,bm42")


@pytest.mark.parametrize(
    ("name", "k1", "b", "k3"), [("bm25", 1.5, 0.75, math.inf), ("bm25-long", 3.0, 1.0, 8.0)]
)
def test_bm25_by_hand(name: str, k1: float, b: float, k3: float) -> None:
    """Lucene's formula; the counts of the query are saturated by k3, of which infinity is none."""
    (system,) = lexical_baselines([name], TEXTS)
    tokens = [[word for word in text.split() if word not in ("and", "the")] for text in TEXTS]
    lengths = [len(token) for token in tokens]
    mean = sum(lengths) / 5

    def weight(word: str, document: int) -> float:
        frequency = sum(word in token for token in tokens)
        idf = math.log(1 + (5 - frequency + 0.5) / (frequency + 0.5))
        count = tokens[document].count(word)
        return idf * count / (count + k1 * (1 - b + b * lengths[document] / mean))

    def by_hand(query: int, document: int) -> float:
        counts = Counter(tokens[query])
        saturated = {
            word: n if k3 == math.inf else n * (k3 + 1) / (k3 + n) for word, n in counts.items()
        }
        return sum(count * weight(word, document) for word, count in saturated.items())

    scores = system.score(rows(0, 3))
    assert scores[0] == pytest.approx([by_hand(0, n) for n in range(5)], rel=1e-5)
    assert scores[1] == pytest.approx([by_hand(3, n) for n in range(5)], rel=1e-5)
    (pair,) = system.score_pairs(rows(0), rows(3))
    assert pair == pytest.approx(by_hand(0, 3) / 5 + by_hand(3, 0) / 5, rel=1e-5)


@pytest.mark.parametrize("name", ["tfidf", "tfidf-pairs", "lsa"])
def test_cosines_of_words(name: str) -> None:
    (system,) = lexical_baselines([name], TEXTS)
    scores = system.score(rows(*range(5)))
    assert np.allclose(np.diag(scores), 1, atol=1e-5)
    assert np.allclose(scores, scores.T, atol=1e-5)
    assert scores[0, 1] > scores[0, 2]
    pairs = system.score_pairs(rows(0, 2), rows(1, 4))
    assert pairs == pytest.approx(scores[[0, 2], [1, 4]], abs=1e-6)


def test_the_rarest_and_the_commonest_words_do_not_count() -> None:
    (system,) = lexical_baselines(["tfidf"], ["once aa bb", "aa cc dd", "bb cc dd", "dd ee", "ee"])
    cosines = system.score(rows(0))
    assert cosines[0, 1] == pytest.approx(0.5)  # "aa" of "aa bb" and "aa cc", all equally rare


@pytest.mark.parametrize("name", LEXICAL_BASELINES)
def test_queries_that_are_no_documents_change_nothing(name: str) -> None:
    (system,) = lexical_baselines([name], TEXTS)
    (with_query,) = lexical_baselines([name], [*TEXTS, "river valley unheard"], len(TEXTS))
    assert with_query.score(rows(1)).shape == (1, 5)
    assert np.allclose(system.score(rows(0, 1)), with_query.score(rows(0, 1)), atol=1e-5)
    assert with_query.score(rows(5))[0].argmax() == 0


def test_a_corpus_without_shared_words() -> None:
    with pytest.raises(CorpusError, match="no word is in two documents"):
        list(lexical_baselines(["tfidf"], ["one", "two"]))
    with pytest.raises(CorpusError, match="at least three"):
        list(lexical_baselines(["lsa"], ["aa bb", "aa", "cc", "dd"]))


def test_means_of_all_blocks_and_of_the_first_tokens() -> None:
    blocks = corpus_blocks([3, 1, 2])
    vectors = list(blocks.vectors())
    means = [some.mean(0) for some in vectors]
    unit = np.stack([mean / np.linalg.norm(mean) for mean in means])
    assert np.allclose(mean_system(blocks).score(rows(0, 1, 2)), unit @ unit.T, atol=1e-3)
    assert blocks_within(blocks, 20).tolist() == [2, 1, 2]
    assert blocks_within(blocks, 19).tolist() == [1, 1, 1]
    assert blocks_within(blocks, 5).tolist() == [1, 1, 1]  # at least one
    first = first_tokens_system(blocks, 10).score_pairs(rows(0), rows(2))
    assert first == pytest.approx([vectors[0][0] @ vectors[2][0]], abs=1e-3)


def test_a_document_without_blocks_is_like_nothing() -> None:
    blocks = corpus_blocks([2, 0, 3, 0])
    for system in (mean_system(blocks), chunk_system(blocks), first_tokens_system(blocks)):
        scores = system.score(rows(0, 1))
        assert scores[:, [1, 3]].tolist() == [[0, 0], [0, 0]]
        assert scores[0, 0] == pytest.approx(1, abs=1e-5)
        assert system.score_pairs(rows(0, 1), rows(1, 3)).tolist() == [0, 0]


@pytest.mark.parametrize(("make", "size"), [(chunk_system, CHUNK_BLOCKS), (maxsim_system, 1)])
def test_chunks_by_hand(make: Callable[[EncodedCorpus], System], size: int) -> None:
    sizes = [size + 3, 1, 3 * size]
    blocks = corpus_blocks(sizes)
    chunks = []
    for vectors in blocks.vectors():
        parts = [vectors[first : first + size].mean(0) for first in range(0, len(vectors), size)]
        chunks.append(np.stack([part / np.linalg.norm(part) for part in parts]))
    system = make(blocks)
    there = (chunks[0] @ chunks[2].T).max(1).mean()
    back = (chunks[2] @ chunks[0].T).max(1).mean()
    assert system.score(rows(0, 2))[0, 2] == pytest.approx(there, abs=1e-5)
    assert system.score(rows(0, 2))[1, 0] == pytest.approx(back, abs=1e-5)
    assert system.score_pairs(rows(0), rows(2))[0] == pytest.approx((there + back) / 2, abs=1e-5)

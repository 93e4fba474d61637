"""The sentence-level filter against TextRank and PageRank written out once more."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from encoder.reranker.sentence_ranking import (
    DAMPING,
    page_rank,
    rank_sentences,
    similarities,
    split_for_ranking,
)

WORDS = [f"w{number}" for number in range(40)]
Sentences = st.lists(st.lists(st.sampled_from(WORDS), unique=True, max_size=8), max_size=70)
FREQUENT = [WORDS[: 2 + number % 9] for number in range(60)]  # w0 and w1 are in all of them


def plain_similarities(sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Equation 1, pair by pair."""
    found = np.zeros((len(sentences), len(sentences)))
    for i, a in enumerate(sentences):
        for j, b in enumerate(sentences):
            if i != j and a and b and (length := math.log(len(a)) + math.log(len(b))) > 0:
                found[i, j] = len(set(a) & set(b)) / length
    return found


def plain_ranks(weights: np.ndarray) -> np.ndarray:
    """Equation 6, a thousand times."""
    number = len(weights)
    sums = weights.sum(0)
    shares = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    ranks = np.full(number, 1 / number)
    for _ in range(1000):
        ranks = DAMPING * shares @ ranks + (1 - DAMPING) / number
    return ranks / ranks.sum()


@given(Sentences)
@example(FREQUENT)
def test_similarities_are_those_of_the_formula(sentences: list[list[str]]) -> None:
    found = similarities([tuple(words) for words in sentences])
    assert found.shape == (len(sentences), len(sentences))
    np.testing.assert_allclose(found, plain_similarities(sentences), rtol=1e-5)


@given(Sentences.filter(len))
def test_ranks_are_those_of_page_rank(sentences: list[list[str]]) -> None:
    weights = similarities([tuple(words) for words in sentences])
    ranks = page_rank(weights)
    assert ranks.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(ranks, plain_ranks(weights.astype(np.float64)), atol=1e-4)


def test_each_text_says_what_matters_in_the_other() -> None:
    both = "The harbour quay was built of stone."
    first = split_for_ranking(f"Bakers knead dough daily. {both} Poets admire autumn colours.")
    second = split_for_ranking(
        "The stone quay of the harbour stands. Stone harbour walls protect a quay."
    )
    ranks, _ = rank_sentences(first, second)
    assert first.sentence(int(ranks.argmax())) == both


def test_stop_words_case_and_accents_do_not_count() -> None:
    read = split_for_ranking("The Café was where it was. THE CAFE IS OURS, again!")
    assert read.words == (("cafe",), ("cafe",))


@pytest.mark.parametrize("text", ["", "...", "The of and.", "Yes."])
def test_texts_with_nothing_to_rank(text: str) -> None:
    ranks, others = rank_sentences(
        split_for_ranking(text), split_for_ranking("One more sentence about quays.")
    )
    assert len(ranks) == len(split_for_ranking(text).spans)
    assert np.isfinite(ranks).all()
    assert np.isfinite(others).all()


def test_of_a_long_text_the_first_sentences_are_ranked() -> None:
    read = split_for_ranking("Stones are heavy. " * 30, most=12)
    assert len(read.words) == len(read.spans) == 12

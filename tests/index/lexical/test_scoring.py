"""Lexical scores of pairs: those that the index gives, whatever way they are made."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.lexical.scoring import (
    join_rows,
    rows_of_texts,
    term_cosines,
    weigh_rows,
)
from index.lexical.terms import count_terms
from index.progress import SilentProgress

TEXTS = [
    "Ants live in colonies of the forest. Workers carry leaves, and ants dig the soil.",
    "Bees live in hives of the forest. Workers carry nectar, and bees dance.",
    "The tribunal of the town held the assessment void. The appeal was allowed.",
    "?!",
    "The tribunal of the county reduced the assessment of the tax, number 4711.",
    "Rivers carve valleys. The ice of the glacier carves them, too, but faster.",
]
PAIRS = np.array([*combinations(range(len(TEXTS)), 2), (4, 2), (1, 1)], dtype=np.int64)


class Counting(SilentProgress):
    """Counts what is done."""

    def __init__(self) -> None:
        self.done = 0

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        self.done += count


def test_pairs_score_as_a_stored_query_does(
    open_store: Callable[..., Any], entry: Callable[..., Any]
) -> None:
    store = open_store()
    store.put([entry(str(number), text) for number, text in enumerate(TEXTS)])
    documents = store.find([str(number) for number in range(len(TEXTS))])
    ids = np.array([documents[str(number)].vector_id for number in range(len(TEXTS))])
    found = term_cosines(store.lexical.term_rows(ids, SilentProgress()), PAIRS, SilentProgress())
    of_texts = term_cosines(rows_of_texts(TEXTS), PAIRS, SilentProgress())
    assert found == pytest.approx(of_texts, abs=1e-6)
    for (source, target), score in zip(PAIRS.tolist(), found.tolist(), strict=True):
        query = store.lexical.read_stored(int(ids[source]))
        (expected,) = store.lexical.score(query, ids[[target]])
        assert score == pytest.approx(expected, abs=1e-6)
    assert found[-1] == pytest.approx(1.0)
    assert found[-2] == pytest.approx(found[PAIRS.tolist().index([2, 4])], abs=1e-6)


def test_a_document_that_is_not_there_scores_nothing(
    open_store: Callable[..., Any], entry: Callable[..., Any]
) -> None:
    store = open_store()
    store.put([entry(str(number), text) for number, text in enumerate(TEXTS)])
    rows = store.lexical.term_rows(np.array([1, 99]), SilentProgress())
    assert len(rows) == 2
    both = np.array([[0, 1]], dtype=np.int64)
    assert term_cosines(rows, both, SilentProgress()).tolist() == [0.0]
    assert len(store.lexical.term_rows(np.zeros(0, dtype=np.int64), SilentProgress())) == 0


def test_every_pair_is_told_once() -> None:
    progress = Counting()
    term_cosines(rows_of_texts(TEXTS), PAIRS, progress)
    assert progress.done == len(PAIRS)


words = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=8)


@given(st.lists(words, min_size=2, max_size=6), st.integers(0, 5))
def test_cosines_are_those_of_dense_vectors(texts: list[list[str]], cut: int) -> None:
    names = "abcde"
    terms = [*names, *(f"{one} {other}" for one in names for other in names)]
    counted = [count_terms(" ".join(one)) for one in texts]
    counts = np.array([[one[term] for term in terms] for one in counted], dtype=np.float64)
    having = (counts > 0).sum(axis=0)
    idf = np.where(having >= 2, np.log(len(texts) / np.maximum(having, 1)), 0.0)
    weights = np.sqrt(counts) * idf
    weights /= np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)
    pairs = np.array(list(combinations(range(len(texts)), 2)), dtype=np.int64)
    expected = np.einsum("ij,ij->i", weights[pairs[:, 0]], weights[pairs[:, 1]])
    rows = rows_of_texts([" ".join(one) for one in texts])
    assert term_cosines(rows, pairs, SilentProgress()) == pytest.approx(expected, abs=1e-6)
    documents = [
        (np.flatnonzero(row).astype(np.uint32), row[row > 0].astype(np.uint16)) for row in counts
    ]
    parts = [some for some in (documents[:cut], documents[cut:]) if some]
    joined = join_rows([weigh_rows(some, idf.astype(np.float32)) for some in parts])
    assert term_cosines(joined, pairs, SilentProgress()) == pytest.approx(expected, abs=1e-6)

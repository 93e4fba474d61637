from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.errors import CheckpointError
from encoder.terms import term_table, title_matcher

CONTINUES = np.array([False] * 6 + [True] * 4)  # pieces 6 to 9 go on with a word
VOCABULARY = term_table.TermVocabulary(CONTINUES, buckets=1_000)

tokens = st.lists(st.integers(0, 9), min_size=1, max_size=40)


def words_of(sequence: list[int]) -> list[tuple[int, ...]]:
    words: list[list[int]] = []
    for token in sequence:
        if CONTINUES[token] and words:
            words[-1].append(token)
        else:
            words.append([token])
    return [tuple(word) for word in words if len(word) > 1]


def table(rows: int = VOCABULARY.rows, width: int = 5) -> term_table.TermTable:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((rows, width)).astype(np.float32)
    return term_table.quantise_term_table(random.random(rows).astype(np.float32), vectors)


@given(tokens)
def test_equal_words_have_equal_hashes_and_others_not(sequence: list[int]) -> None:
    words = words_of(sequence)
    hashes = term_table.hash_joined_pieces(np.array(sequence), CONTINUES).tolist()
    assert len(hashes) == len(words)
    for word, hashed in zip(words, hashes, strict=True):
        for other, also in zip(words, hashes, strict=True):
            assert (word == other) == (hashed == also)


@given(tokens)
def test_every_piece_and_every_word_of_several_is_counted(sequence: list[int]) -> None:
    terms = VOCABULARY.count([sequence[:7], sequence[7:]] if len(sequence) > 7 else [sequence])
    assert np.all(np.diff(terms.rows) > 0)
    pieces = {row: int(n) for row, n in zip(terms.rows, terms.counts, strict=True) if row < 10}
    assert pieces == {piece: sequence.count(piece) for piece in set(sequence)}
    assert terms.counts[terms.rows >= 10].sum() == len(words_of(sequence))


def test_without_buckets_words_of_several_pieces_are_not_counted() -> None:
    terms = term_table.TermVocabulary(CONTINUES, buckets=0).count([[1, 6, 7, 2]])
    assert terms.rows.tolist() == [1, 2, 6, 7]


def test_features_are_weighted_log_counts_times_the_vectors(tmp_path: Path) -> None:
    known = table()
    terms = VOCABULARY.count([[1, 6, 1, 6, 3], [2, 2, 2]])
    logs = np.log1p(terms.counts) * known.weights[terms.rows]
    vectors = known.vectors[terms.rows] * known.scales[terms.rows, None]
    expected = (logs / np.linalg.norm(logs)) @ vectors
    assert np.allclose(known.features(terms), expected, atol=1e-6)
    silent = term_table.TermTable(np.zeros_like(known.weights), known.vectors, known.scales)
    assert silent.features(terms).tolist() == [0.0] * 5
    term_table.write_term_table(tmp_path / "terms.npz", known)
    read = term_table.read_term_table((tmp_path / "terms.npz").read_bytes(), "terms.npz")
    assert np.array_equal(read.features(terms), known.features(terms))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 but no archive", b"words"])
def test_what_is_no_table_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"here\.npz"):
        term_table.read_term_table(data, "here.npz")


def test_a_table_of_uneven_rows_is_refused(tmp_path: Path) -> None:
    whole = table()
    term_table.write_term_table(
        tmp_path / "t", term_table.TermTable(whole.weights[:-1], whole.vectors, whole.scales)
    )
    with pytest.raises(CheckpointError, match="differ in their rows"):
        term_table.read_term_table((tmp_path / "t").read_bytes(), "t")


def test_rounding_error_is_a_254th_of_the_largest_component() -> None:
    vectors = np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32)
    rounded = term_table.quantise_term_table(np.ones(50, dtype=np.float32), vectors)
    error = np.abs(rounded.vectors * rounded.scales[:, None] - vectors)
    assert np.all(error <= np.abs(vectors).max(1, keepdims=True) / 253)


TOKENS = st.lists(st.integers(0, 3), max_size=30)
TITLES = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8)


def items_of(tokens: Iterable[int]) -> np.ndarray:
    return np.array(list(tokens), dtype=np.uint64) + np.uint64(1)


@given(TITLES, TOKENS)
def test_a_title_is_found_at_its_places(titles: list[list[int]], tokens: list[int]) -> None:
    table = title_matcher.TitleMatcher.of(title_matcher.hash_titles(map(items_of, titles)))
    places = [
        (int(title_matcher.hash_titles([items_of(title)])[0]), len(title), start)
        for title in {tuple(title) for title in titles if title}
        for start in range(len(tokens) - len(title) + 1)
        if tokens[start : start + len(title)] == list(title)
    ]
    assert sorted(
        (hashed, length, start)
        for length, starts, hashes in table.find(items_of(tokens))
        for start, hashed in zip(starts.tolist(), hashes.tolist(), strict=True)
    ) == sorted(places)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9), st.integers(1, 9))
def test_a_run_is_hashed_with_its_length(items: list[int], length: int) -> None:
    """As stored signatures of near-duplicates have it."""
    expected = []
    for start in range(len(items) - length + 1):
        hashed = length
        for item in items[start : start + length]:
            hashed = (hashed * 0x9E3779B97F4A7C15 + item) % 2**64
        expected.append(hashed)
    assert title_matcher.hash_runs(np.array(items, dtype=np.uint64), length).tolist() == expected

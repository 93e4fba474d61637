"""Which titles a run of tokens names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.terms.title_matcher import MAX_TITLE_TOKENS, NO_TITLES, TitleMatcher, title_table

TOKENS = st.lists(st.integers(0, 3), max_size=30)
TITLES = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8)


def found(table: TitleMatcher, tokens: list[int]) -> set[int]:
    return set(table.find(np.array(tokens, dtype=np.int64)).tolist())


@given(TITLES, TOKENS)
def test_a_title_is_found_where_its_tokens_stand_in_a_row(
    titles: list[list[int]], tokens: list[int]
) -> None:
    runs = {
        tuple(tokens[start : start + length])
        for length in range(1, 5)
        for start in range(len(tokens) - length + 1)
    }
    table = title_table(titles)
    expected = {int(title_table([t]).hashes[0]) for t in titles if tuple(t) in runs}
    assert found(table, tokens) == expected


def test_different_titles_have_different_hashes() -> None:
    titles = [[0], [0, 0], [0, 0, 0], [1, 0], [0, 1], [2**31, 5], [5, 2**31]]
    table = title_table([*titles, *titles, []])
    assert len(table) == len(titles)
    assert table.lengths.tolist() == [1, 2, 3]
    assert (np.diff(table.hashes.astype(object)) > 0).all()


def test_a_title_that_is_too_long_is_left_out() -> None:
    longest = list(range(MAX_TITLE_TOKENS))
    assert found(title_table([longest]), [7, *longest, 7])
    assert not len(title_table([[*longest, 7]]))


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3]])
def test_without_titles_nothing_is_found(tokens: list[int]) -> None:
    assert found(NO_TITLES, tokens) == set()
    assert found(title_table([[5, 6]]), tokens) == set()


def test_of_some_titles_only_they_are_found() -> None:
    table = title_table([[1], [2, 3], [4]])
    kept = np.array([True, False, True])
    assert found(table.only(kept), [1, 2, 3, 4]) == set(table.hashes[kept].tolist())

"""Selections are sets of ids, whichever way round they are written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.selection import Selection, complement, intersection, union

END = 12
EVERY_ID = np.arange(-2, END + 3)
IDS = st.sets(st.integers(0, END - 1))
SELECTIONS = st.builds(
    lambda ids, inverted: Selection(END, np.array(sorted(ids), dtype=np.int64), inverted),
    IDS,
    st.booleans(),
)


def members(one: Selection) -> set[int]:
    listed = set(one.ids.tolist())
    return set(range(one.end)) - listed if one.inverted else listed


@given(one=SELECTIONS, other=SELECTIONS)
def test_they_are_joined_as_sets_are(one: Selection, other: Selection) -> None:
    assert members(intersection(one, other)) == members(one) & members(other)
    assert members(union(one, other)) == members(one) | members(other)
    assert members(complement(one)) == set(range(END)) - members(one)
    for joined in (intersection(one, other), union(one, other)):
        assert joined.ids.tolist() == sorted(set(joined.ids.tolist()))
        assert joined.ids.dtype == np.int64


@given(one=SELECTIONS)
def test_what_they_contain(one: Selection) -> None:
    contained = EVERY_ID[one.contains(EVERY_ID)].tolist()
    assert set(contained) == members(one)
    assert one.most(END) == len(members(one))
    assert one.most(0) == 0


def test_selections_of_different_times_are_not_joined() -> None:
    with pytest.raises(ValueError, match="end at 3 and 4"):
        intersection(Selection(3), Selection(4))

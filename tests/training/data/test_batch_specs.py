"""Cuts of a document into sections: all of it, in order, no part empty."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.sampling import cut_blocks


@settings(deadline=None)
@given(
    blocks=st.integers(1, 80),
    parts=st.integers(1, 9),
    seed=st.one_of(st.none(), st.integers(0, 99)),
    starts=st.lists(st.integers(-3, 90), max_size=12),
)
def test_sections_are_the_document(
    blocks: int, parts: int, seed: int | None, starts: list[int]
) -> None:
    random = None if seed is None else np.random.default_rng(seed)
    sections = cut_blocks(blocks, parts, random, starts)
    assert np.concatenate(sections).tolist() == list(range(blocks))
    assert all(len(section) for section in sections)
    inside = {start for start in starts if 0 < start < blocks}
    assert len(sections) == min(parts, len(inside) + 1 if inside else blocks)
    if inside:
        assert {int(section[0]) for section in sections[1:]} <= inside


def test_without_a_draw_parts_are_equal() -> None:
    assert [len(section) for section in cut_blocks(12, 3)] == [4, 4, 4]
    assert [len(section) for section in cut_blocks(9, 2)] in ([4, 5], [5, 4])


def test_draws_move_halves_from_three_to_seven_tenths() -> None:
    firsts = [len(cut_blocks(100, 2, np.random.default_rng(seed))[0]) for seed in range(200)]
    assert 30 <= min(firsts) < 35
    assert 65 < max(firsts) <= 70

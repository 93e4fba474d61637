"""The places of aligned blocks in two texts, also where only some blocks are aligned."""

from dataclasses import replace

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import MAX_BLOCKS, AlignmentSpace, choose_blocks, fit_space
from encoder.arrays import Float32
from encoder.comparison.compare import align_blocks, compare_texts
from encoder.comparison.result import BlockAlignment
from encoder.comparison.text import ComparableText, prepare_text
from tests.encoder.alignment.test_space import WIDTH, block_vectors
from tests.encoder.comparison.test_compare import PAIR

SPACE: AlignmentSpace = fit_space(block_vectors(2_000), dimension=WIDTH)


def text_of(vectors: Float32, name: str) -> ComparableText:
    """Return a text with a sentence for each block, which says which block it is."""
    sentences = [f"Block {number} of {name}." for number in range(len(vectors))]
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
    offsets = np.stack([np.concatenate([[0], ends[:-1]]), ends - 1], axis=1)
    text = " ".join(sentences)
    aligned = SPACE.project(vectors)
    return prepare_text(text, vectors[0], vectors, offsets, aligned=aligned)


def aligned(left: ComparableText, right: ComparableText) -> BlockAlignment:
    found = align_blocks(left, right)
    assert found is not None
    return found


@pytest.mark.parametrize(("ours", "theirs"), [(1_024, 1_024), (1_024, 5), (1, 1), (6, 9)])
def test_of_long_texts_the_blocks_that_are_aligned_are_named(ours: int, theirs: int) -> None:
    first, second = block_vectors(ours, seed=1), block_vectors(theirs, seed=2)
    row, column = int(choose_blocks(ours)[-1]), int(choose_blocks(theirs)[-1])
    second[column] = first[row]
    left, right = text_of(first, "this"), text_of(second, "that")
    found = aligned(left, right)
    names = [(left.text[slice(*pair.left)], right.text[slice(*pair.right)]) for pair in found.pairs]
    assert names[0] == (f"Block {row} of this.", f"Block {column} of that.")
    assert {name for name, _ in names} <= {f"Block {n} of this." for n in choose_blocks(ours)}
    assert {name for _, name in names} <= {f"Block {n} of that." for n in choose_blocks(theirs)}
    assert sum(pair.share for pair in found.pairs) == pytest.approx(1.0)
    expected = align(SPACE.project(first), [SPACE.project(second)])[0]
    assert found.score == pytest.approx(float(expected), abs=1e-6)


def test_a_comparison_has_it_and_one_without_a_space_has_none() -> None:
    left, right = (text_of(block_vectors(4, seed=seed), "it") for seed in (1, 2))
    assert compare_texts(left, right, PAIR).block_alignment == aligned(left, right)
    assert compare_texts(left, replace(right, aligned=None), PAIR).block_alignment is None


def test_aligned_blocks_of_another_text_are_refused() -> None:
    first = text_of(block_vectors(200), "it")
    other = SPACE.project(block_vectors(MAX_BLOCKS - 1))
    with pytest.raises(ValueError, match="95 aligned blocks, not the expected 96"):
        prepare_text(first.text, first.vector, first.block_vectors, first.offsets, aligned=other)

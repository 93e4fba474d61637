"""The alignment space: whitening, hubness, quantisation, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import (
    BACKGROUND,
    DIMENSION,
    MAX_BLOCKS,
    MIN_SAMPLE,
    NEIGHBOURS,
    SAMPLE_BLOCKS,
    SAMPLE_DOCUMENTS,
    AlignedBlocks,
    AlignmentSpace,
    Whitening,
    choose_blocks,
    fit_space,
    fit_to_blocks,
    neutral_space,
    open_space,
    read_space,
    sample_blocks,
    write_checkpoint_space,
    write_space,
)
from encoder.arrays import Float32, unit
from encoder.checkpoint import ALIGNMENT, load_checkpoint
from encoder.errors import CheckpointError

WIDTH = 24


def block_vectors(count: int, seed: int = 0) -> Float32:
    """Return unit vectors with a common mean and very unequal variances."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, WIDTH)) * np.linspace(3.0, 0.1, WIDTH) + 1.0
    unit: Float32 = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def dequantised(blocks: AlignedBlocks) -> Float32:
    rows: Float32 = blocks.codes * blocks.scales[:, None]
    return rows


@pytest.fixture(scope="module")
def space() -> AlignmentSpace:
    return fit_space(block_vectors(MIN_SAMPLE), dimension=WIDTH)


def test_it_centres_and_divides_by_the_root_of_the_deviation(space: AlignmentSpace) -> None:
    sample, other = block_vectors(MIN_SAMPLE), block_vectors(50, seed=1)
    mean = sample.astype(np.float64).mean(axis=0)
    _, singular, axes = np.linalg.svd(sample - mean, full_matrices=False)
    expected = (other - mean) @ (axes.T * (singular / np.sqrt(MIN_SAMPLE)) ** -0.5)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = dequantised(space.project(other))
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    # Axes may be turned around, which changes no cosine.
    assert np.abs(found @ found.T - expected @ expected.T).max() < 0.02


def test_means_of_blocks_are_whitened_along_all_axes() -> None:
    documents = [block_vectors(20, seed) for seed in range(MIN_SAMPLE // 20)]
    space = fit_to_blocks(documents, whitens=True)
    assert space is not None
    assert space.documents is not None
    assert np.array_equal(space.documents.projection, space.projection)  # `WIDTH` axes
    means = unit(np.stack([blocks.mean(axis=0) for blocks in documents]))
    expected = unit((means - means.mean(axis=0)) @ space.projection)
    again = read_space(write_space(space))
    assert np.allclose(again.whiten(means), expected, atol=1e-5)
    plain = fit_to_blocks(documents, whitens=False)
    assert plain is not None
    assert plain.whiten(means) is means
    assert fit_to_blocks(documents[:-1], whitens=True) is None


def test_documents_stay_as_they_are_where_blocks_are_too_few_for_the_axes() -> None:
    sample = np.random.default_rng(3).random((MIN_SAMPLE, MIN_SAMPLE // 4 + 1), np.float32)
    space, vectors = fit_space(sample, documents=sample), unit(sample[:3])
    assert np.allclose(space.whiten(vectors), vectors, atol=1e-6)


def test_the_first_axes_are_kept() -> None:
    sample = block_vectors(MIN_SAMPLE)
    few = fit_space(sample, dimension=8)
    assert few.projection.shape == (WIDTH, 8)
    whole = fit_space(sample, dimension=WIDTH)
    assert np.allclose(np.abs(few.projection), np.abs(whole.projection[:, :8]), atol=1e-5)
    assert fit_space(sample).dimension == min(DIMENSION, WIDTH)


def test_hubness_is_the_mean_cosine_of_the_nearest(space: AlignmentSpace) -> None:
    blocks = space.project(block_vectors(40, seed=3))
    background = space.background * space.background_scales[:, None]
    cosines = np.sort(dequantised(blocks) @ background.T, axis=1)
    assert np.allclose(blocks.hubness, cosines[:, -NEIGHBOURS:].mean(axis=1), atol=1e-5)


def test_the_background_is_bounded() -> None:
    assert len(fit_space(block_vectors(BACKGROUND + 500)).background) == BACKGROUND


def test_blocks_that_make_no_space_are_refused(space: AlignmentSpace) -> None:
    with pytest.raises(ValueError, match=f"{MIN_SAMPLE - 1} blocks are fewer than {MIN_SAMPLE}"):
        fit_space(block_vectors(MIN_SAMPLE - 1))
    broken = block_vectors(MIN_SAMPLE)
    broken[7, 3] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        fit_space(broken)
    with pytest.raises(ValueError, match=f"block vectors of 7 numbers in a space for {WIDTH}"):
        space.project(np.ones((2, 7), dtype=np.float32))


def test_the_neutral_space_keeps_cosines_and_knows_no_hubs() -> None:
    vectors = block_vectors(30)
    blocks = neutral_space(WIDTH).project(vectors)
    assert not blocks.hubness.any()
    rows = dequantised(blocks)
    assert np.abs(rows @ rows.T - vectors @ vectors.T).max() < 0.02


@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (96, 96), (97, 96), (1024, 96)])
def test_blocks_at_equal_distances_are_aligned(count: int, chosen: int) -> None:
    rows = choose_blocks(count)
    assert len(rows) == chosen <= MAX_BLOCKS
    assert rows[0] == 0
    assert rows[-1] < count
    assert set(np.diff(rows).tolist()) <= {count // chosen, -(-count // chosen)}
    vectors = block_vectors(count)
    codes = neutral_space(WIDTH).project(vectors).codes
    assert np.array_equal(codes, neutral_space(WIDTH).project(vectors[rows]).codes)


def test_a_sample_is_at_equal_distances() -> None:
    documents = [np.full((3, 2), n, dtype=np.float16) for n in range(SAMPLE_DOCUMENTS * 2)]
    sample = sample_blocks(documents)
    assert np.unique(sample).tolist() == list(range(0, SAMPLE_DOCUMENTS * 2, 2))
    few = sample_blocks([np.zeros((SAMPLE_BLOCKS * 2, 2), dtype=np.float16)])
    assert few.shape == (SAMPLE_BLOCKS, 2)
    assert few.dtype == np.float32


BROKEN: dict[str, Callable[[AlignmentSpace], bytes]] = {
    "cut": lambda space: write_space(space)[:-200],
    "mean of another width": lambda s: write_space(replace(s, mean=s.mean[1:])),
    "other background": lambda s: write_space(replace(s, background=s.background[:, 1:])),
    "whitening of another width": lambda s: write_space(
        replace(s, documents=Whitening(s.mean, s.projection[:, 1:]))
    ),
    "other scales": lambda s: write_space(replace(s, background_scales=s.background_scales[1:])),
    "projection of one axis": lambda s: write_space(replace(s, projection=s.projection[0])),
    "not finite": lambda s: write_space(replace(s, mean=s.mean * np.float32(np.inf))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_space_is_refused(space: AlignmentSpace, name: str) -> None:
    with pytest.raises(ValueError, match=r"space|shape|not finite"):
        read_space(BROKEN[name](space))


@pytest.fixture
def own(copy_checkpoint: Callable[[str], Path]) -> Path:
    """A checkpoint that the test may change."""
    return copy_checkpoint("smith")


def test_the_space_of_a_checkpoint_is_read_as_written(own: Path) -> None:
    before = load_checkpoint(own)
    files = {name: file for name, file in before.files.items() if name != ALIGNMENT}
    neutral = open_space(replace(before, files=files))
    assert np.array_equal(neutral.projection, np.eye(before.block_dimension))
    sample = np.random.default_rng(0).normal(size=(2_000, before.block_dimension))
    space = fit_space(sample.astype(np.float32))
    write_checkpoint_space(own, space)
    opened = load_checkpoint(own)
    few = sample[:5].astype(np.float32)
    again, expected = (each.project(few) for each in (open_space(opened), space))
    assert np.array_equal(again.codes, expected.codes)
    assert np.array_equal(again.hubness, expected.hubness)
    assert opened.fingerprint == before.fingerprint  # document vectors do not depend on it
    write_checkpoint_space(own, fit_space(sample[:, :5].astype(np.float32)))
    with pytest.raises(CheckpointError, match=r"alignment\.npz: is for block vectors of 5 numbers"):
        open_space(load_checkpoint(own))
    (own / ALIGNMENT).write_bytes(b"something else")
    with pytest.raises(CheckpointError, match=r"alignment\.npz"):
        open_space(opened)

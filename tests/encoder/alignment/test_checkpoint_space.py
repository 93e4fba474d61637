"""The alignment space of a checkpoint."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.checkpoint_space import open_space, write_checkpoint_space
from encoder.alignment.space import fit_space
from encoder.checkpoint import ALIGNMENT, load_checkpoint
from encoder.errors import CheckpointError


@pytest.fixture
def own(copy_checkpoint: Callable[[str], Path]) -> Path:
    """A checkpoint that the test may change."""
    return copy_checkpoint("smith")


def test_a_checkpoint_without_one_has_the_neutral_space(own: Path) -> None:
    opened = load_checkpoint(own)
    (own / ALIGNMENT).unlink(missing_ok=True)
    files = {name: one for name, one in opened.files.items() if name != ALIGNMENT}
    space = open_space(replace(opened, files=files))
    assert np.array_equal(space.projection, np.eye(opened.block_dimension))


def test_it_is_read_as_it_was_written(own: Path) -> None:
    before = load_checkpoint(own)
    sample = np.random.default_rng(0).normal(size=(2_000, before.block_dimension))
    space = fit_space(sample.astype(np.float32))
    write_checkpoint_space(own, space)
    opened = load_checkpoint(own)
    assert np.array_equal(open_space(opened).background, space.background)
    assert opened.fingerprint == before.fingerprint  # document vectors do not depend on it


def test_a_damaged_one_and_one_of_another_width_are_refused(own: Path) -> None:
    sample = np.random.default_rng(0).normal(size=(2_000, 5)).astype(np.float32)
    write_checkpoint_space(own, fit_space(sample))
    with pytest.raises(CheckpointError, match=r"alignment\.npz: is for block vectors of 5 numbers"):
        open_space(load_checkpoint(own))
    opened = load_checkpoint(own)
    (own / ALIGNMENT).write_bytes(b"something else")
    with pytest.raises(CheckpointError, match=r"alignment\.npz"):
        open_space(opened)

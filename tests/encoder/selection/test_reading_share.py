"""The reading share of a checkpoint and in the fingerprint of vectors."""

from pathlib import Path

import pytest

from encoder.adapter import vector_space
from encoder.checkpoint import load_checkpoint
from encoder.errors import CheckpointError
from encoder.selection.reading_share import (
    mark_fingerprint,
    split_fingerprint,
    with_reading_share,
)


def test_a_fingerprint_names_the_share(tiny_checkpoint: Path) -> None:
    whole = load_checkpoint(tiny_checkpoint)
    some = with_reading_share(whole, 0.35)
    assert vector_space(whole, None).fingerprint == whole.fingerprint == some.fingerprint
    marked = vector_space(some, None).fingerprint
    assert marked != whole.fingerprint
    assert split_fingerprint(marked) == (whole.fingerprint, 0.35)
    assert split_fingerprint(whole.fingerprint) == (whole.fingerprint, 1.0)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.29, 0.35, 0.99, 1.0])
def test_shares_come_back(share: float) -> None:
    assert split_fingerprint(mark_fingerprint("abc", share)) == ("abc", share)


@pytest.mark.parametrize("marked", ["abc-other-0.35", "abc-coverage-x", "abc-coverage-7", "abc-"])
def test_another_method_is_another_fingerprint(marked: str) -> None:
    assert split_fingerprint(marked) == (marked, 1.0)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, 0.123, float("nan"), float("inf")])
def test_what_is_no_share_is_refused(tiny_checkpoint: Path, share: float) -> None:
    with pytest.raises(ValueError, match=r"is not from 0\.01 to 1"):
        with_reading_share(load_checkpoint(tiny_checkpoint), share)


def test_models_whose_blocks_depend_on_others_encode_all(
    tiny_ernie_doc: Path, tiny_colde: Path
) -> None:
    for directory in (tiny_ernie_doc, tiny_colde):
        checkpoint = load_checkpoint(directory)
        with pytest.raises(CheckpointError, match="encodes every sentence block"):
            with_reading_share(checkpoint, 0.5)
        assert with_reading_share(checkpoint, 1.0) == checkpoint

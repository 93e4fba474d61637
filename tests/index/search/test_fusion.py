"""The fusion rule: what it computes, and where it is kept."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.calibration import Calibration, read_calibration, write_calibration
from encoder.checkpoint import FUSION, load_checkpoint, write_manifest
from encoder.errors import CheckpointError
from index.search.fusion import (
    DEFAULT_RULE,
    LinearFusion,
    read_fusion,
    semantic_scores,
    write_fusion,
)
from tests.kit.calibrations import MAPS

RULE = LinearFusion(0.375, 0.75, 0.5, expected_slope=2.0, expected_intercept=-0.6)


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("rule", "aligns"),
    [
        (LinearFusion(0.5), False),
        (LinearFusion(0.5, 0.1), True),
        (LinearFusion(0.5, 0.0, 0.1), True),
    ],
)
def test_a_rule_aligns_for_any_mode(rule: LinearFusion, aligns: bool) -> None:
    assert rule.aligns is aligns


def test_what_was_not_aligned_gets_the_alignment_score_to_expect() -> None:
    vector = np.array([0.5, 0.5, 0.9, 0.1], dtype=np.float32)
    # 2 * 0.5 - 0.6 = 0.4; the two others are beyond the bounds of an alignment score.
    expected = [0.45, 0.95, 0.05]
    alignment = np.array([0.1, np.nan, np.nan, np.nan], dtype=np.float32)
    assert semantic_scores(RULE, "semantic", vector, alignment).tolist() == pytest.approx(
        [0.3, *expected]
    )
    none = semantic_scores(RULE, "semantic", vector)
    assert none.tolist() == pytest.approx([0.45, *expected])
    assert none.dtype == np.float32


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_has_its_bounds(weight: float) -> None:
    for name in ("lexical_weight", "hybrid_alignment_weight", "semantic_alignment_weight"):
        with pytest.raises(ValueError, match=f"^{name} is .*, not from 0 to 1"):
            replace(RULE, **{name: weight})


@pytest.mark.parametrize(
    ("slope", "intercept"), [(-0.1, 0.0), (float("inf"), 0.0), (0.1, float("nan"))]
)
def test_the_expected_alignment_line_has_bounds(slope: float, intercept: float) -> None:
    with pytest.raises(ValueError, match="the expected alignment score has the line"):
        LinearFusion(0.5, 0.5, 0.5, slope, intercept)


def test_a_checkpoint_carries_its_rule(checkpoint: Path) -> None:
    assert read_fusion(load_checkpoint(checkpoint)) == DEFAULT_RULE
    write_fusion(load_checkpoint(checkpoint), RULE)
    again = load_checkpoint(checkpoint)
    assert read_fusion(again) == RULE
    write_manifest(checkpoint)
    assert FUSION in load_checkpoint(checkpoint).files


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (RULE, {"semantic", "lexical", "adapted", "hybrid", "adapted hybrid"}),
        (replace(RULE, lexical_weight=0.5), {"semantic", "lexical", "adapted"}),
        (replace(RULE, hybrid_alignment_weight=0.5), {"semantic", "lexical", "adapted"}),
        (replace(RULE, semantic_alignment_weight=0.25), {"lexical", "hybrid", "adapted hybrid"}),
        (replace(RULE, expected_intercept=-0.5), {"lexical"}),
    ],
)
def test_outdated_calibrations_are_removed(
    checkpoint: Path, rule: LinearFusion, left: set[str]
) -> None:
    write_fusion(load_checkpoint(checkpoint), RULE)
    opened = load_checkpoint(checkpoint)
    kinds = ("semantic", "lexical", "adapted", "hybrid", "adapted hybrid")
    write_calibration(opened, Calibration(opened.fingerprint, dict.fromkeys(kinds, MAPS)))
    write_fusion(load_checkpoint(checkpoint), rule)
    read = read_calibration(load_checkpoint(checkpoint))
    assert read is not None
    assert set(read.kinds) == left


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": 2}, "format 2 is not 1"),
        ({"lexical_weight": 2.0}, "not a fusion rule: .*not from 0 to 1"),
        ({"hybrid_alignment_weight": "much"}, "not a fusion rule"),
        ({"expected_slope": -1.0}, "not a fusion rule: .*has the line"),
        ({"fingerprint": "f" * 64}, "was fitted for checkpoint ffffffffffff"),
    ],
)
def test_a_wrong_rule_is_refused(
    checkpoint: Path, changed: dict[str, object], message: str
) -> None:
    write_fusion(load_checkpoint(checkpoint), RULE)
    path = checkpoint / FUSION
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(CheckpointError, match=r"fusion\.json is not the file"):
        read_fusion(load_checkpoint(checkpoint))
    write_manifest(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        read_fusion(load_checkpoint(checkpoint))

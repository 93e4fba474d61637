"""The fusion rule: what it computes, and where it is kept."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.calibration import (
    Calibration,
    FittedMap,
    Logistic,
    read_calibration,
    write_calibration,
)
from encoder.checkpoint import FUSION, load_checkpoint, write_manifest
from encoder.errors import CheckpointError
from index.errors import StoreError
from index.search.records import Mode
from index.search.score import (
    DEFAULT_RULE,
    ChannelWeights,
    CorpusFusion,
    LinearFusion,
    Spreads,
    StandardRule,
    apply_rule,
    read_fusion,
    write_fusion,
)
from tests.kit.calibrations import ERROR, MAPS

RULE = LinearFusion(0.375, 0.75, 0.5, expected_slope=2.0, expected_intercept=-0.6)
NARROW, WIDE = 0.05, 0.1
WEIGHTS = ChannelWeights(1.0, 2.0, 1.0)
GENERAL = Spreads(NARROW, NARROW, NARROW)
STANDARD = StandardRule(
    ChannelWeights(2.0, 1.0, 1.0), ChannelWeights(0.0, 1.0, 3.0), GENERAL, 2.0, -0.6
)


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
    assert apply_rule(RULE, "semantic", vector, alignment)[0].tolist() == pytest.approx(
        [0.3, *expected]
    )
    none = apply_rule(RULE, "semantic", vector)[0]
    assert none.tolist() == pytest.approx([0.45, *expected])
    assert none.dtype == np.float32


@pytest.mark.parametrize("channel", ["lexical", "alignment", "vector"])
def test_twice_the_spread_halves_the_raw_weight(channel: str) -> None:
    def raw(rule: LinearFusion) -> dict[str, float]:
        rest = 1 - rule.lexical_weight
        alignment = rest * rule.hybrid_alignment_weight
        return {"lexical": rule.lexical_weight, "alignment": alignment, "vector": rest - alignment}

    weights = raw(STANDARD.resolve())
    assert weights == pytest.approx({"lexical": 0.5, "alignment": 0.25, "vector": 0.25})
    wide = raw(STANDARD.resolve(replace(GENERAL, **{channel: WIDE})))
    assert sum(wide.values()) == pytest.approx(1.0)
    semantic = STANDARD.resolve(replace(GENERAL, vector=WIDE)).semantic_alignment_weight
    assert semantic == pytest.approx(1 / (1 + 3 / 2))  # of 1 and 3, the second halved
    for other in weights.keys() - {channel}:
        halved = wide[channel] / wide[other]
        assert halved == pytest.approx(weights[channel] / weights[other] / 2)


@pytest.mark.parametrize("mode", ["semantic", "lexical", "hybrid"])
def test_a_document_scores_1_with_itself(mode: Mode) -> None:
    ones = np.ones(2, dtype=np.float32)
    for spreads in (None, replace(GENERAL, lexical=WIDE), replace(GENERAL, alignment=None)):
        _, scores = apply_rule(STANDARD.resolve(spreads), mode, ones, ones, ones)
        assert scores.tolist() == pytest.approx([1.0, 1.0])


def test_a_pair_scores_the_same_among_other_documents() -> None:
    random = np.random.default_rng(1)
    channels = random.uniform(size=(3, 50)).astype(np.float32)
    rule = STANDARD.resolve(replace(GENERAL, alignment=WIDE))
    _, every = apply_rule(rule, "hybrid", *channels)
    _, some = apply_rule(rule, "hybrid", *channels[:, ::7])
    assert some.tolist() == every[::7].tolist()


def test_a_spread_has_its_bounds() -> None:
    """Equal documents have no spread, a collection may lack a channel: the general one holds."""
    for measured, taken in ((0.0, NARROW / 4), (None, NARROW), (1e9, 4 * NARROW)):
        for channel in ("alignment", "lexical"):
            found = STANDARD.resolve(replace(GENERAL, **{channel: measured}))
            assert found == STANDARD.resolve(replace(GENERAL, **{channel: taken}))
    assert STANDARD.resolve(Spreads(0.0, 0.0, 0.0)) == STANDARD.resolve()


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), float("inf")])
def test_the_weights_of_a_file_have_bounds(tmp_path: Path, weight: float) -> None:
    for name in ("lexical_weight", "hybrid_alignment_weight", "semantic_alignment_weight"):
        CorpusFusion("f", replace(RULE, **{name: weight}), {}).write(tmp_path)
        with pytest.raises(StoreError, match=f"rule.{name}: Input should be"):
            CorpusFusion.read(tmp_path, "f")


@pytest.mark.parametrize(
    ("slope", "intercept"), [(-0.1, 0.0), (float("inf"), 0.0), (0.1, float("nan"))]
)
def test_the_line_of_a_file_has_bounds(tmp_path: Path, slope: float, intercept: float) -> None:
    CorpusFusion("f", LinearFusion(0.5, 0.5, 0.5, slope, intercept), {}).write(tmp_path)
    with pytest.raises(StoreError, match=r"rule.expected_.*: Input should be"):
        CorpusFusion.read(tmp_path, "f")


def test_a_map_of_a_file_rises(tmp_path: Path) -> None:
    falling = FittedMap(Logistic(-1.0, 0.0), ERROR)
    CorpusFusion("f", RULE, {}, {"hybrid": falling}).write(tmp_path)
    with pytest.raises(StoreError, match=r"hybrid.map.slope: Input should be greater than 0"):
        CorpusFusion.read(tmp_path, "f")


def test_a_checkpoint_carries_its_rule(checkpoint: Path) -> None:
    assert read_fusion(load_checkpoint(checkpoint)) == DEFAULT_RULE
    write_fusion(load_checkpoint(checkpoint), STANDARD)
    again = load_checkpoint(checkpoint)
    assert read_fusion(again) == STANDARD
    write_manifest(checkpoint)
    assert FUSION in load_checkpoint(checkpoint).files


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (STANDARD, {"semantic", "lexical", "hybrid"}),
        (replace(STANDARD, hybrid=WEIGHTS), {"semantic", "lexical"}),
        (replace(STANDARD, semantic=WEIGHTS), {"lexical", "hybrid"}),
        (replace(STANDARD, expected_intercept=-0.5), {"lexical"}),
        (replace(STANDARD, spreads=replace(GENERAL, vector=WIDE)), {"lexical"}),
    ],
)
def test_outdated_calibrations_are_removed(
    checkpoint: Path, rule: StandardRule, left: set[str]
) -> None:
    write_fusion(load_checkpoint(checkpoint), STANDARD)
    opened = load_checkpoint(checkpoint)
    kinds = ("semantic", "lexical", "hybrid")
    write_calibration(opened, Calibration(opened.fingerprint, dict.fromkeys(kinds, MAPS)))
    write_fusion(load_checkpoint(checkpoint), rule)
    read = read_calibration(load_checkpoint(checkpoint))
    assert read is not None
    assert set(read.kinds) == left


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": 1}, "format 1 is not 3"),
        ({"hybrid": {"lexical": -1, "alignment": 1, "vector": 1}}, "not a fusion rule: .*greater"),
        ({"hybrid": {"lexical": 0, "alignment": 0, "vector": 0}}, "not a fusion rule: .*no weight"),
        ({"semantic": {"lexical": "much", "alignment": 1, "vector": 1}}, "not a fusion rule"),
        ({"spreads": {}}, "not a fusion rule"),
        ({"expected_slope": -1.0}, "not a fusion rule: expected_slope"),
        ({"fingerprint": "f" * 64}, "was fitted for checkpoint ffffffffffff"),
    ],
)
def test_a_wrong_rule_is_refused(
    checkpoint: Path, changed: dict[str, object], message: str
) -> None:
    write_fusion(load_checkpoint(checkpoint), STANDARD)
    path = checkpoint / FUSION
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(CheckpointError, match=r"fusion\.json is not the file"):
        read_fusion(load_checkpoint(checkpoint))
    write_manifest(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        read_fusion(load_checkpoint(checkpoint))

"""The calibration of a checkpoint: what is written is read, and nothing else is."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.calibration import (
    ByTail,
    Calibration,
    FittedOn,
    KindCalibration,
    Logistic,
    MapError,
    match_probabilities,
    parse_calibration,
    read_calibration,
    standard_scores,
    write_calibration,
)
from encoder.checkpoint import CALIBRATION, Checkpoint, load_checkpoint
from encoder.errors import CheckpointError

ERROR = MapError(0.4, 0.02, 0.03, 0.01)
KIND = KindCalibration(
    ByTail(6.5, 1.6, -6.5, -1.8, -3.0, -0.5),
    ERROR,
    by_corpus={"papers": 0.02},
    fitted_on=(FittedOn("papers", 100, 50, "d" * 64),),
)


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Checkpoint:
    """Return a copy of the tiny checkpoint."""
    return load_checkpoint(Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy")))


def written(checkpoint: Checkpoint) -> Checkpoint:
    write_calibration(checkpoint, Calibration(checkpoint.fingerprint, {"semantic": KIND}))
    return load_checkpoint(checkpoint.directory)


def test_what_is_written_is_read_and_leaves_the_fingerprint(checkpoint: Checkpoint) -> None:
    assert read_calibration(checkpoint) is None
    calibrated = written(checkpoint)
    assert calibrated.fingerprint == checkpoint.fingerprint
    assert CALIBRATION in calibrated.files
    read = read_calibration(calibrated)
    assert read == Calibration(checkpoint.fingerprint, {"semantic": KIND})
    other = replace(KIND, map=replace(KIND.map, intercept=-2.1))
    assert len(read.version) == 12
    assert read.version != Calibration(checkpoint.fingerprint, {"semantic": other}).version
    assert read.version != Calibration(checkpoint.fingerprint, {"adapted": KIND}).version


def test_a_changed_file_is_refused(checkpoint: Checkpoint) -> None:
    calibrated = written(checkpoint)
    path = calibrated.directory / CALIBRATION
    path.write_text(path.read_text().replace("6.5", "5.5"))
    with pytest.raises(CheckpointError, match=r"calibration\.json is not the file"):
        read_calibration(calibrated)
    with pytest.raises(CheckpointError, match=r"calibration\.json: was changed"):
        parse_calibration(path.read_bytes(), path)


def test_one_of_other_weights_is_refused(checkpoint: Checkpoint) -> None:
    write_calibration(checkpoint, Calibration("e" * 64, {"semantic": KIND}))
    with pytest.raises(CheckpointError, match="was fitted for checkpoint eeee"):
        read_calibration(load_checkpoint(checkpoint.directory))
    for data in (b"{", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(CheckpointError, match=r"x\.json: not a calibration"):
            parse_calibration(data, Path("x.json"))


@pytest.mark.parametrize(
    "change", [{"slope": float("nan")}, {"slope": "1"}, {"slope_by_tail": 3.0}, {"longest": -4.0}]
)
def test_a_map_by_tail_rises(checkpoint: Checkpoint, change: dict[str, object]) -> None:
    path = written(checkpoint).directory / CALIBRATION
    content = json.loads(path.read_text())
    content["kinds"]["semantic"]["map"].update(change)
    with pytest.raises(CheckpointError, match="not a calibration"):
        parse_calibration(json.dumps(content).encode(), path)


def test_the_maps_by_hand() -> None:
    logistic = match_probabilities(Logistic(2.0, -1.0), np.array([0.5, 1.0, 1e6, -1e6]))
    assert logistic == pytest.approx([0.5, 1 / (1 + np.exp(-1)), 1.0, 0.0])


def test_the_map_of_a_corpus_by_hand() -> None:
    logistic = KIND.map.of_corpus(np.exp(-1.0))
    assert (logistic.slope, logistic.intercept) == pytest.approx((4.9, -4.7))
    assert KIND.map.of_corpus(0.0) == KIND.map.of_corpus(np.exp(-3.0))
    assert KIND.map.of_corpus(1.0) == KIND.map.of_corpus(np.exp(-0.5))
    found = standard_scores(np.array([0.1, 0.2, 1.1]), median=0.1, tail=1.0)
    assert found == pytest.approx(np.arcsinh([0.0, 1.0, 10.0]))
    assert np.isfinite(standard_scores(np.array([0.0, 1.0]), median=1.0, tail=0.0)).all()

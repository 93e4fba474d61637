"""Calibrations of made-up numbers, and what a service knows with some of them."""

import shutil
from dataclasses import replace
from pathlib import Path

from encoder import calibration
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.search.calibrate import TOO_FEW, Scoring
from index.search.corpus_calibration import CorpusCalibration, NullDistribution
from index.search.score import DEFAULT_RULE, Spreads

MODES = ("semantic", "lexical", "hybrid")
ERROR = calibration.MapError(0.4, 0.02, 0.03, 0.01)
MAPS = calibration.KindCalibration(
    calibration.ByTail(1.0, 0.0, -2.0, 0.0, -3.0, 0.0),
    ERROR,
    by_corpus={"papers": 0.02},
    fitted_on=(calibration.FittedOn("papers", 100, 50, "d" * 64),),
)
TABLE = NullDistribution(400, 79_800, (-1.0, 0.2, 1.0), (1.0, 0.5, 0.001))


SPREADS = Spreads(0.05, 0.05, 0.05)
RULE = DEFAULT_RULE.resolve(SPREADS)


def of_checkpoint(fingerprint: str = "f") -> calibration.Calibration:
    return calibration.Calibration(fingerprint, {"semantic": MAPS, "hybrid": MAPS})


def of_corpus(fingerprint: str = "f") -> CorpusCalibration:
    kinds = {"semantic": TABLE, "hybrid": TABLE}
    return CorpusCalibration(fingerprint, SPREADS, 0.3, RULE, kinds)


NOTHING = Scoring(RULE, unmeasured=TOO_FEW)
ONLY_MAP = Scoring(RULE, of_checkpoint(), None, "1", unmeasured=TOO_FEW)
BY_RATE = Scoring(RULE, of_checkpoint(), of_corpus(), "1+2")
ONLY_RATE = Scoring(RULE, None, of_corpus(), "2")


def calibrated(checkpoint: Path, folder: Path) -> tuple[Path, Path]:
    """Return a copy of a checkpoint and a data directory, with calibrations of every mode.

    Without them bounds on probabilities are refused, which no schema can say.
    """
    copy, data = folder / "checkpoint", folder / "data"
    shutil.copytree(checkpoint, copy)
    data.mkdir()
    loaded = load_checkpoint(copy)
    fingerprint = OnnxEncoder(loaded).fingerprint
    calibration.write_calibration(
        loaded, calibration.Calibration(fingerprint, dict.fromkeys(MODES, MAPS))
    )
    replace(of_corpus(fingerprint), kinds=dict.fromkeys(MODES, TABLE)).write(data)
    return copy, data

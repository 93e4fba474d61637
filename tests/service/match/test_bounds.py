"""Calibrations over HTTP: probabilities and rates of matches, bounds that hold or are refused."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encoder.calibration import write_calibration
from encoder.checkpoint import CALIBRATION, load_checkpoint
from encoder.errors import CheckpointError
from index.search.calibrate import (
    CHANCE_DOCUMENTS,
    DAMAGED,
    OTHER_RULE,
    TOO_FEW,
    UNMEASURED,
    Scoring,
    open_scoring,
)
from index.search.corpus_calibration import CALIBRATION_FILE, RATES
from index.search.score import LinearFusion, read_fusion
from service.app import create_app
from service.startup import open_engine
from tests.kit.calibrations import BY_RATE, NOTHING, ONLY_MAP, ONLY_RATE, of_checkpoint, of_corpus
from tests.kit.service_fixtures import fill, with_parts


@pytest.fixture
def calibrated(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """Return a copy of the tiny checkpoint that has a calibration."""
    copy = Path(shutil.copytree(tiny_checkpoint, tmp_path / "calibrated"))
    checkpoint = load_checkpoint(copy)
    write_calibration(checkpoint, of_checkpoint(checkpoint.fingerprint))
    return copy


def with_scoring(client: Any, scoring: Scoring) -> Any:
    """Return a client of the same service with this scoring."""
    engine = with_parts(client.app.state.engine, scores=scoring)
    return type(client)(create_app(engine.settings, engine))


def test_matches_have_probabilities_and_rates(library: Any) -> None:
    plain = library.post("/match", json={"id": "ants"}).json()
    assert plain["calibration"] is None
    assert plain["no_probability"] == TOO_FEW
    for measure in ("probability", "false_positive_rate", "relevant"):
        assert {match[measure] for match in plain["matches"]} == {None}
    answer = with_scoring(library, BY_RATE).post("/match", json={"id": "ants"}).json()
    assert (answer["calibration"], answer["no_probability"]) == ("1+2", None)
    probabilities = [match["probability"] for match in answer["matches"]]
    rates = [match["false_positive_rate"] for match in answer["matches"]]
    assert len(probabilities) == 3
    assert all(0 < probability < 1 for probability in probabilities)
    assert probabilities == sorted(probabilities, reverse=True)
    assert rates == sorted(rates)
    relevant = [match["relevant"] for match in answer["matches"]]
    assert relevant == [400 * rate <= CHANCE_DOCUMENTS for rate in rates] != [True] * 3


@pytest.mark.parametrize(
    ("field", "measure"),
    [("min_probability", "probability"), ("max_false_positive_rate", "false_positive_rate")],
)
def test_bounds_keep_the_best(library: Any, field: str, measure: str) -> None:
    client = with_scoring(library, BY_RATE)
    every = client.post("/match", json={"id": "ants"}).json()["matches"]
    bound = every[1][measure]
    some = client.post("/match", json={"id": "ants", field: bound}).json()["matches"]
    assert [match["id"] for match in some] == [match["id"] for match in every[:2]]
    first = client.post("/match", json={"id": "ants", field: bound, "top_k": 1}).json()["matches"]
    assert first == every[:1]


@pytest.mark.parametrize(
    ("field", "scoring", "said"),
    [
        ("min_probability", NOTHING, "no probability: fewer than 100 documents"),
        ("min_probability", ONLY_RATE, "no calibration of the checkpoint, or after tuning"),
        ("max_false_positive_rate", ONLY_MAP, "no false positive rate: fewer than 100 documents"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(
    library: Any, field: str, scoring: Scoring, said: str
) -> None:
    client = with_scoring(library, scoring)
    response = client.post("/match", json={"id": "ants", field: 0.5})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["pointer"] == f"#/{field}"
    assert said in error["detail"]


def test_the_service_opens_both_calibrations(
    make_client: Callable[..., Any], calibrated: Path, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(calibrated)
    data = tmp_path / "own"
    data.mkdir()
    of_corpus(checkpoint.fingerprint).write(data)
    version = make_client(encoder=calibrated, data=data).get("/version").json()["calibration"]
    assert version["version"] == (
        f"{of_checkpoint(checkpoint.fingerprint).version}"
        f"+{of_corpus(checkpoint.fingerprint).version}"
    )
    known = {"method": "platt", "calibration_error": 0.02, "documents": 400}
    for kind in ("semantic", "hybrid"):
        thresholds = version["kinds"][kind].pop("thresholds")
        assert [found["false_positive_rate"] for found in thresholds] == list(RATES)
        assert thresholds[-1]["score"] == 1.0
    unknown = {"method": None, "calibration_error": None, "documents": None, "thresholds": []}
    assert version["kinds"] == {"semantic": known, "hybrid": known, "lexical": unknown}


@pytest.mark.parametrize(
    ("content", "why", "warning"),
    [
        ("{}", DAMAGED, "calibration.json: is damaged"),
        ({"fingerprint": "e" * 64}, DAMAGED, "was made for vectors eeeeeeeeeeee"),
        ({"rule": LinearFusion(0.5)}, OTHER_RULE, ""),
        (None, UNMEASURED, ""),
    ],
)
def test_without_a_measurement_the_general_statistics_serve(
    make_client: Callable[..., Any],
    calibrated: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    content: Any,
    why: str,
    warning: str,
) -> None:
    """A server starts with those of its checkpoint, gives no probability, and says why."""
    checkpoint = load_checkpoint(calibrated)
    (data := tmp_path / "own").mkdir()
    if isinstance(content, str):
        (data / CALIBRATION_FILE).write_text(content)
    elif content:
        replace(of_corpus(checkpoint.fingerprint), **content).write(data)
    client = make_client(encoder=calibrated, data=data)
    served = client.app.state.engine.default
    assert served.scoring.present.unmeasured == TOO_FEW
    assert warning in caplog.text
    assert bool(warning) == any(record.levelname == "WARNING" for record in caplog.records)
    scoring = open_scoring(checkpoint, data)
    assert scoring.unmeasured == why
    if why != OTHER_RULE:
        assert served.scoring.present.rule == scoring.rule == read_fusion(checkpoint).resolve()
    answer = fill(client).post("/match", json={"id": "ants"}).json()
    assert {match["probability"] for match in answer["matches"]} == {None}


def test_a_damaged_calibration_of_the_checkpoint_stops_the_start(
    make_settings: Callable[..., Any], calibrated: Path
) -> None:
    (calibrated / CALIBRATION).write_text("{}")
    with pytest.raises(CheckpointError, match=r"calibration\.json is not the file"):
        open_engine(make_settings(encoder=calibrated))

"""False positive rates and probabilities of each mode keep what they say, over HTTP."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from index.progress import SilentProgress
from index.search.calibrate import ScoreCalibrator
from index.search.corpus_calibration import CorpusCalibration, measure_store
from index.search.score import LinearFusion
from tests.kit.service_fixtures import with_parts

MODES = ("semantic", "lexical", "hybrid")
FEWER = [*(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[:2]), "hybrid"]
RULE = LinearFusion(0.6, 0.4, 0.7, expected_slope=0.5, expected_intercept=0.2)
STORED, FRESH = 110, 50
RATE = "false_positive_rate"


def draw_texts(count: int, seed: int) -> list[str]:
    """Draw texts of eight topics, with words that all of them share and some that few do."""
    random = np.random.default_rng(seed)
    texts = []
    for topic in random.integers(8, size=count):
        common = [f"common{n}" for n in random.integers(30, size=12)]
        own = [f"topic{topic}word{n}" for n in random.integers(20, size=8)]
        rare = [f"rare{n}" for n in random.integers(300, size=3)]
        texts.append(" ".join(random.permutation([*common, *own, *rare])) + ".")
    return texts


@pytest.fixture(scope="module")
def calibrated(make_shared_client: Callable[[], Any]) -> Any:
    """Return a client of an application with random documents, calibrated in every mode."""
    client = make_shared_client()
    documents = [{"id": f"d{n}", "text": text} for n, text in enumerate(draw_texts(STORED, 1))]
    for start in range(0, STORED, 10):
        body = {"documents": documents[start : start + 10]}
        assert client.post("/index", json=body).status_code == 200
    engine = client.app.state.engine
    found = measure_store(engine.default.data.store, RULE, SilentProgress())
    fingerprint = engine.encoder.fingerprint
    calibration = CorpusCalibration(fingerprint, found.statistics, RULE, dict(found.by_mode))
    judge = ScoreCalibrator(None, calibration, calibration.version)
    client.app.state.engine = with_parts(engine, calibrator=judge, fusion=RULE)
    return client


def rates_of(client: Any, queries: list[dict[str, str]], mode: str) -> np.ndarray:
    """Return the false positive rate of every document for every query."""
    found = []
    for start in range(0, len(queries), 10):
        body = {"queries": queries[start : start + 10], "mode": mode, "top_k": STORED}
        for result in client.post("/match", json=body).json()["results"]:
            found += [match[RATE] for match in result["matches"]]
    return np.array(found)


@pytest.mark.parametrize("mode", FEWER)
def test_rates_of_random_pairs_are_what_they_say(calibrated: Any, mode: str) -> None:
    stored = rates_of(calibrated, [{"id": f"d{n}"} for n in range(STORED)], mode)
    pairs = STORED * (STORED - 1)  # lexical mode leaves out those that share no word
    for rate in (0.1, 0.03, 0.01):
        share = (stored <= rate).sum() / pairs
        assert share == pytest.approx(rate, rel=0.06, abs=4 / pairs)


@pytest.mark.slow
@pytest.mark.parametrize("mode", FEWER)
def test_they_hold_for_texts_that_are_not_stored(calibrated: Any, mode: str) -> None:
    fresh = rates_of(calibrated, [{"text": text} for text in draw_texts(FRESH, 2)], mode)
    for rate, least, most in ((0.1, 0.07, 0.13), (0.01, 0.005, 0.02)):
        assert least < (fresh <= rate).sum() / (FRESH * STORED) < most


def test_a_text_without_indexed_words_is_judged_by_its_vector(calibrated: Any) -> None:
    body = {"text": "Zyzzyva quokka!", "top_k": 5}
    found = calibrated.post("/match", json=body).json()["matches"]
    semantic = calibrated.post("/match", json={**body, "mode": "semantic"}).json()["matches"]
    assert len(found) == 5
    for match, other in zip(found, semantic, strict=True):
        assert match[RATE] == pytest.approx(other[RATE], rel=1e-3)

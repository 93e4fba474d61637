"""How random pairs score, and the calibration of a data directory: whole or refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import neutral_space
from encoder.calibration import FittedMap, Logistic
from index.errors import CorpusError, StoreError
from index.lexical.scoring import term_cosines
from index.progress import SilentProgress
from index.search import corpus_calibration
from index.search.calibrate import CalibratedScore, calibrate_scores, served_kinds, within
from index.search.corpus_calibration import (
    CALIBRATION_FILE,
    MAX_PAIRS,
    RATES,
    Channels,
    CorpusCalibration,
    NullDistribution,
    false_positive_rates,
    measure_channels,
    measure_distribution,
    measure_store,
    pair_scores,
    sample_pairs,
)
from index.search.records import Bounds
from index.search.score import DEFAULT_RULE, LinearFusion
from tests.kit.calibrations import (
    BY_RATE,
    ERROR,
    NOTHING,
    ONLY_MAP,
    ONLY_RATE,
    SPREADS,
    TABLE,
    of_corpus,
)
from tests.kit.index_fixtures import DIMENSION
from tests.kit.paragraphs import entry_of

FINGERPRINT = "a" * 64
RULE = LinearFusion(0.5)
Vectors = Callable[..., Any]


def measure(vectors: np.ndarray, seed: int = 0) -> NullDistribution:
    found = measure_channels(
        Channels(vectors, None), LinearFusion(0.0), SilentProgress(), seed=seed
    )
    return found.kinds["semantic"]


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    """Return 1,600 vectors around 40 centres: more pairs than are sampled."""
    random = np.random.default_rng(3)
    vectors = random.normal(size=(40, 16)).repeat(40, axis=0) + random.normal(size=(1600, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def measured(clusters: np.ndarray) -> NullDistribution:
    return measure(clusters, seed=1)


def test_all_pairs_of_a_small_corpus_are_sampled_once() -> None:
    pairs = sample_pairs(120, seed=0)
    assert len(pairs) == 120 * 119 // 2
    assert len({frozenset(pair) for pair in pairs.tolist()}) == len(pairs)


def test_pairs_of_a_large_corpus_are_of_two_documents_and_seeded() -> None:
    pairs = sample_pairs(5_000, seed=4)
    assert pairs.shape == (MAX_PAIRS, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert (pairs.min(), pairs.max()) == (0, 4_999)
    assert (pairs == sample_pairs(5_000, seed=4)).all()
    assert (pairs != sample_pairs(5_000, seed=5)).any()


@pytest.mark.parametrize("count", [0, 1, 99])
def test_too_few_documents_are_refused_with_the_limit(vectors: Vectors, count: int) -> None:
    with pytest.raises(CorpusError, match=f"{count} documents are too few.*: 100 are needed"):
        measure(vectors(count, seed=1))


def test_a_score_that_is_not_finite_is_refused(vectors: Vectors) -> None:
    damaged = vectors(120, seed=1)
    damaged[7] = np.nan
    with pytest.raises(CorpusError, match="not finite"):
        measure(damaged)


def test_thresholds_hold_on_fresh_pairs(clusters: np.ndarray, measured: NullDistribution) -> None:
    assert [threshold.false_positive_rate for threshold in measured.thresholds] == list(RATES)
    fresh = pair_scores(clusters, sample_pairs(len(clusters), seed=2))
    for threshold in measured.thresholds:
        rate = float((fresh >= threshold.score).mean())
        assert rate == pytest.approx(threshold.false_positive_rate, rel=0.2)


def test_the_rate_of_a_score(clusters: np.ndarray, measured: NullDistribution) -> None:
    scores = pair_scores(clusters, sample_pairs(len(clusters), seed=1))
    for share in (0.999, 0.9, 0.5, 0.1, 0.01, 0.001):
        score = np.quantile(scores, 1 - share)
        (found,) = false_positive_rates(measured, np.array([score]))
        assert found == pytest.approx(share, rel=0.05)
    ends = false_positive_rates(measured, np.array([-1.0, 1.0]))
    assert ends[0] == 1.0
    assert 0 < ends[1] <= 2 / MAX_PAIRS


def test_a_small_corpus_has_no_threshold_of_a_small_rate(vectors: Vectors) -> None:
    small = measure(vectors(100, seed=1))  # 4,950 pairs
    assert [threshold.false_positive_rate for threshold in small.thresholds] == [0.1, 0.03, 0.01]
    assert small.thresholds[-1].score > 0


def test_equal_documents_have_no_threshold(vectors: Vectors) -> None:
    equal = measure(vectors(1, seed=1).repeat(150, axis=0))
    assert equal.thresholds == ()
    assert false_positive_rates(equal, np.array([1.0])).tolist() == [1.0]
    assert (equal.median, equal.tail) == (equal.scores[0], 0.0)


@pytest.fixture
def calibration(vectors: Callable[..., Any]) -> CorpusCalibration:
    kinds = {"semantic": measure(vectors(120, seed=1), seed=5)}
    return CorpusCalibration(FINGERPRINT, SPREADS, 0.3, RULE, kinds)


def with_distribution(content: Any, scores: list[float], rates: list[float]) -> Any:
    content["kinds"]["semantic"].update({"scores": scores, "rates": rates})
    return content


def test_what_is_written_is_read(tmp_path: Path, calibration: CorpusCalibration) -> None:
    assert CorpusCalibration.read(tmp_path, FINGERPRINT) is None
    calibration.write(tmp_path)
    read = CorpusCalibration.read(tmp_path, FINGERPRINT)
    assert read == calibration
    assert read.version == calibration.version
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {**content, "kinds": {"semantic": {}}},
        lambda content: {**content, "rule": {**content["rule"], "lexical_weight": 1.5}},
        lambda content: {**content, "spreads": {"vector": -0.1}},
        lambda content: {**content, "spreads": {"vector": float("inf")}},
        lambda content: {**content, "spreads": {"vector": None}},
        lambda content: [content],
        lambda content: with_distribution(content, [0.1, float("nan")], [1.0, 0.1]),
        lambda content: with_distribution(content, [0.1, 0.5], [0.1, 1.0]),
        lambda content: with_distribution(content, [0.1, 0.5], [1.0, 0.0]),
        lambda content: with_distribution(content, [], []),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, calibration: CorpusCalibration, damage: Callable[[Any], Any]
) -> None:
    calibration.write(tmp_path)
    path = tmp_path / CALIBRATION_FILE
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(StoreError, match=r"calibration\.json: is damaged"):
        CorpusCalibration.read(tmp_path, FINGERPRINT)


def test_one_unreadable_or_of_another_checkpoint_is_refused(
    tmp_path: Path, calibration: CorpusCalibration
) -> None:
    calibration.write(tmp_path)
    with pytest.raises(StoreError, match="was made for vectors aaaaaaaaaaaa, not for bbbb"):
        CorpusCalibration.read(tmp_path, "b" * 64)
    path = tmp_path / CALIBRATION_FILE
    content = json.loads(path.read_text())
    for changed, reason in (({"format": 9}, "format 9 is not 4"), ({"version": "0"}, "version")):
        path.write_text(json.dumps({**content, **changed}))
        with pytest.raises(StoreError, match=rf"calibration\.json: .*{reason}"):
            CorpusCalibration.read(tmp_path, FINGERPRINT)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        CorpusCalibration.read(tmp_path, FINGERPRINT)


def test_every_mode_is_measured(
    open_store: Any, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    texts = [f"text {number % 7} of {number % 11} and {number % 13}" for number in range(130)]
    store.put([entry(str(number), text) for number, text in enumerate(texts)])
    _, stored = store.vectors(store.log.added_after(0)[1])
    found = measure_store(store, RULE, SilentProgress(), seed=2)
    measured = found.kinds
    assert (found.rule, found.spreads.alignment) == (RULE, None)
    pairs = pair_scores(stored, sample_pairs(130, 2))
    assert found.spreads.vector == pytest.approx(pairs.std(), abs=1e-6)
    assert (pairs >= found.near_cosine).mean() == pytest.approx(0.001, abs=0.0005)
    assert set(measured) == {"semantic", "lexical", "hybrid"}
    assert measured["semantic"] == measure(stored, seed=2)
    assert measured["lexical"].scores[0] == 0.0
    alone = measure_store(store, LinearFusion(1.0), SilentProgress(), seed=2)
    assert alone.kinds["hybrid"] == measured["lexical"]
    vectors = measure_store(store, LinearFusion(0.0), SilentProgress(), seed=2)
    assert vectors.kinds["hybrid"].scores == pytest.approx(measured["semantic"].scores, abs=2e-6)
    monkeypatch.setattr(corpus_calibration, "MAX_DOCUMENTS", 110)
    few = measure_store(store, RULE, SilentProgress(), seed=2)
    assert {distribution.documents for distribution in few.kinds.values()} == {110}
    store.delete([str(number) for number in range(129)])
    with pytest.raises(CorpusError, match="1 documents are too few"):
        measure_store(store, RULE, SilentProgress())


def test_random_pairs_are_aligned_as_a_search_aligns_them(open_store: Any) -> None:
    store = open_store()
    store.alignment.start_with(neutral_space(DIMENSION))
    paragraphs = [[n % 7, 20 + n % 11, 50 + n % 13] for n in range(110)]
    entries = [entry_of(str(n), some, blocks=n > 0) for n, some in enumerate(paragraphs)]
    ids = store.put(entries).changed
    rule = LinearFusion(0.5, 0.25, 0.4, expected_slope=0.5, expected_intercept=0.1)
    found = measure_store(store, rule, SilentProgress(), seed=2)
    measured = found.kinds

    _, vectors = store.vectors(store.log.added_after(0)[1])
    pairs = sample_pairs(110, 2)
    cosines = pair_scores(vectors, pairs)
    aligned = store.alignment.read(ids).blocks
    assert set(aligned) == set(ids[1:])  # the first has no block vectors
    alignment = [
        align(aligned[ids[a]], [aligned[ids[b]]])[0] if a else max(0.0, 0.5 * cosine + 0.1)
        for (a, b), cosine in zip(pairs.tolist(), cosines.tolist(), strict=True)
    ]
    words = term_cosines(
        store.lexical.term_rows(store.log.added_after(0)[1], SilentProgress()),
        pairs,
        SilentProgress(),
    )
    scores = {
        "semantic": 0.6 * cosines + 0.4 * np.array(alignment),
        "hybrid": 0.5 * (0.75 * cosines + 0.25 * np.array(alignment)) + 0.5 * words,
    }
    for mode, expected in scores.items():
        table = measure_distribution(expected, 110)
        assert measured[mode].scores == pytest.approx(table.scores, abs=1e-5)
        assert measured[mode].rates == pytest.approx(table.rates, rel=0.01)
    aligned_pairs = np.array(alignment)[pairs[:, 0] > 0]
    assert found.spreads.alignment == pytest.approx(aligned_pairs.std(), abs=1e-5)
    assert found.spreads.lexical == pytest.approx(words.std(), abs=1e-5)
    standard = measure_store(store, DEFAULT_RULE, SilentProgress(), seed=2)
    assert standard.spreads == found.spreads
    assert standard.rule == DEFAULT_RULE.resolve(found.spreads) != DEFAULT_RULE.resolve()


def test_scores_are_calibrated_by_what_there_is() -> None:
    for calibrator, rate in ((NOTHING, None), (ONLY_MAP, None), (ONLY_RATE, 0.5)):
        (score,) = calibrate_scores(calibrator, "semantic", [0.2])
        assert score.probability is None
        assert score.false_positive_rate == (rate and pytest.approx(rate))
    assert calibrate_scores(BY_RATE, "semantic", []) == []


def test_a_measured_corpus_by_the_map() -> None:
    corpus = replace(of_corpus(), kinds={"semantic": TABLE, "hybrid": TABLE})
    for mode in ("semantic", "hybrid"):
        known = replace(BY_RATE, corpus=corpus)
        low, high = calibrate_scores(known, mode, [0.2, 1.0])
        assert low.false_positive_rate == pytest.approx(0.5)
        assert low.probability == pytest.approx(1 / (1 + np.exp(2)))
        assert high.false_positive_rate == pytest.approx(0.001)
        assert high.probability == pytest.approx(1 / (1 + np.exp(2 - np.arcsinh(10))))


def test_a_calibration_is_of_one_kind_of_score() -> None:
    (score,) = calibrate_scores(BY_RATE, "lexical", [0.5])
    assert (score.probability, score.false_positive_rate) == (None, None)
    nothing, known = (None, None), (FittedMap(Logistic(1.0, -2.0), ERROR), TABLE)
    assert served_kinds(NOTHING) == dict.fromkeys(("semantic", "lexical", "hybrid"), nothing)
    assert served_kinds(BY_RATE) == {"semantic": known, "lexical": nothing, "hybrid": known}


@pytest.mark.parametrize(
    ("bounds", "inside"),
    [
        (Bounds(), True),
        (Bounds(0.5, 0.8, 0.01), True),
        (Bounds(min_score=0.51), False),
        (Bounds(min_probability=0.81), False),
        (Bounds(max_false_positive_rate=0.009), False),
    ],
)
def test_bounds_are_inclusive_and_each_holds(bounds: Bounds, inside: bool) -> None:
    assert within(bounds, 0.5, CalibratedScore(0.8, 0.01)) == inside


def test_an_unknown_measure_is_outside_of_its_bound() -> None:
    assert within(Bounds(min_score=0.5), 0.5, CalibratedScore())
    assert not within(Bounds(min_probability=0.0), 0.5, CalibratedScore())
    assert not within(Bounds(max_false_positive_rate=1.0), 0.5, CalibratedScore())

"""The calibration of a data directory: measured on its own vectors, whole or refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import neutral_space
from index.errors import CorpusError, StoreError
from index.lexical.scoring import term_cosines
from index.progress import SilentProgress
from index.search import corpus_calibration
from index.search.corpus_calibration import (
    CALIBRATION_FILE,
    CorpusCalibration,
    measure_store,
    read_corpus_calibration,
    write_corpus_calibration,
)
from index.search.fusion import LinearFusion
from index.search.score_distribution import (
    NullDistribution,
    measure_distribution,
    pair_scores,
    sample_pairs,
)
from tests.tools.index_fixtures import DIMENSION
from tests.tools.paragraphs import entry_of

FINGERPRINT = "a" * 64
RULE = LinearFusion(0.5)


def measure(vectors: Any, seed: int) -> NullDistribution:
    pairs = sample_pairs(len(vectors), seed)
    return measure_distribution(pairs, pair_scores(vectors, pairs), len(vectors), seed=seed)


@pytest.fixture
def calibration(vectors: Callable[..., Any]) -> CorpusCalibration:
    return CorpusCalibration(FINGERPRINT, {"semantic": measure(vectors(120, seed=1), seed=5)}, RULE)


def test_a_directory_without_one_has_none(tmp_path: Path) -> None:
    assert read_corpus_calibration(tmp_path, FINGERPRINT, RULE) is None


def test_what_is_written_is_read(tmp_path: Path, calibration: CorpusCalibration) -> None:
    write_corpus_calibration(tmp_path, calibration)
    read = read_corpus_calibration(tmp_path, FINGERPRINT, RULE)
    assert read == calibration
    assert read.version == calibration.version
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]


def test_one_of_another_checkpoint_is_refused(
    tmp_path: Path, calibration: CorpusCalibration
) -> None:
    write_corpus_calibration(tmp_path, calibration)
    with pytest.raises(StoreError, match="was made with checkpoint aaaaaaaaaaaa, not with bbbb"):
        read_corpus_calibration(tmp_path, "b" * 64, RULE)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {**content, "format": 9},
        lambda content: {**content, "kinds": {"semantic": {}}},
        lambda content: {**content, "version": "0"},
        lambda content: {**content, "rule": {**content["rule"], "lexical_weight": 1.5}},
        lambda content: {**content, "rule": {**content["rule"], "hybrid_alignment_weight": "much"}},
        lambda content: {**content, "rule": {**content["rule"], "third_weight": 0.5}},
        lambda content: {**content, "rule": {}},
        lambda content: {**content, "rule": None},
        lambda content: [content],
    ],
)
def test_a_damaged_one_is_refused(
    tmp_path: Path, calibration: CorpusCalibration, damage: Callable[[Any], Any]
) -> None:
    write_corpus_calibration(tmp_path, calibration)
    path = tmp_path / CALIBRATION_FILE
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(StoreError, match=r"calibration\.json: "):
        read_corpus_calibration(tmp_path, FINGERPRINT, RULE)


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [0.5, 0.5], "rates": [1.0, 0.1]},
        {"scores": [0.1, float("nan")], "rates": [1.0, 0.1]},
        {"scores": [0.1, 0.5], "rates": [0.1, 1.0]},
        {"scores": [0.1, 0.5], "rates": [1.0, 0.0]},
        {"scores": [0.1], "rates": [1.0, 0.1]},
        {"scores": [], "rates": []},
    ],
)
def test_a_distribution_that_is_none_is_refused(
    tmp_path: Path, calibration: CorpusCalibration, change: dict[str, Any]
) -> None:
    write_corpus_calibration(tmp_path, calibration)
    path = tmp_path / CALIBRATION_FILE
    content = json.loads(path.read_text())
    content["kinds"]["semantic"].update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="not a calibration"):
        read_corpus_calibration(tmp_path, FINGERPRINT, RULE)


def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / CALIBRATION_FILE).mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        read_corpus_calibration(tmp_path, FINGERPRINT, RULE)


@pytest.mark.parametrize("other", [LinearFusion(0.4), replace(RULE, semantic_alignment_weight=0.2)])
def test_one_of_another_fusion_rule_is_refused(
    tmp_path: Path, calibration: CorpusCalibration, other: LinearFusion
) -> None:
    write_corpus_calibration(tmp_path, calibration)
    with pytest.raises(StoreError, match=r"lexical_weight=0\.5.*, not .*: calibrate again"):
        read_corpus_calibration(tmp_path, FINGERPRINT, other)


def test_a_store_is_measured_in_every_mode(
    open_store: Any, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    texts = [f"text {number % 7} of {number % 11} and {number % 13}" for number in range(130)]
    store.put([entry(str(number), text) for number, text in enumerate(texts)])
    _, stored = store.vectors(store.changes_since(0).added)
    measured = measure_store(store, RULE, SilentProgress(), seed=2)
    assert set(measured) == {"semantic", "lexical", "hybrid"}
    assert measured["semantic"] == measure(stored, seed=2)
    assert measured["lexical"].scores[0] == 0.0
    alone = measure_store(store, LinearFusion(1.0), SilentProgress(), seed=2)
    assert alone["hybrid"] == measured["lexical"]
    vectors = measure_store(store, LinearFusion(0.0), SilentProgress(), seed=2)
    assert vectors["hybrid"].scores == pytest.approx(measured["semantic"].scores, abs=2e-6)
    monkeypatch.setattr(corpus_calibration, "MAX_DOCUMENTS", 110)
    few = measure_store(store, RULE, SilentProgress(), seed=2)
    assert {one.documents for one in few.values()} == {110}
    store.delete([str(number) for number in range(129)])
    with pytest.raises(CorpusError, match="1 documents are too few"):
        measure_store(store, RULE, SilentProgress())


def test_random_pairs_are_aligned_as_a_search_aligns_them(open_store: Any) -> None:
    store = open_store()
    store.alignment.start_with(neutral_space(DIMENSION))
    paragraphs = [[n % 7, 20 + n % 11, 50 + n % 13] for n in range(110)]
    entries = [entry_of(str(n), some, blocks=n > 0) for n, some in enumerate(paragraphs)]
    ids = store.put(entries).added.tolist()
    rule = LinearFusion(0.5, 0.25, 0.4, expected_slope=0.5, expected_intercept=0.1)
    measured = measure_store(store, rule, SilentProgress(), seed=2)

    _, vectors = store.vectors(store.changes_since(0).added)
    pairs = sample_pairs(110, 2)
    cosines = pair_scores(vectors, pairs)
    aligned = store.alignment.read(ids).blocks
    assert set(aligned) == set(ids[1:])  # the first has no block vectors
    alignment = [
        align(aligned[ids[a]], [aligned[ids[b]]])[0] if a else max(0.0, 0.5 * cosine + 0.1)
        for (a, b), cosine in zip(pairs.tolist(), cosines.tolist(), strict=True)
    ]
    words = term_cosines(
        store.lexical.term_rows(store.changes_since(0).added, SilentProgress()),
        pairs,
        SilentProgress(),
    )
    scores = {
        "semantic": 0.6 * cosines + 0.4 * np.array(alignment),
        "hybrid": 0.5 * (0.75 * cosines + 0.25 * np.array(alignment)) + 0.5 * words,
    }
    for mode, expected in scores.items():
        found = measure_distribution(pairs, expected, 110, seed=2)
        assert measured[mode].scores == pytest.approx(found.scores, abs=1e-5)
        assert measured[mode].rates == pytest.approx(found.rates, rel=0.01)

"""The calibration of a data directory: measured on its own vectors, whole or refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from index import corpus_calibration
from index.corpus_calibration import (
    CALIBRATION_FILE,
    CorpusCalibration,
    measure_store,
    read_corpus_calibration,
    write_corpus_calibration,
)
from index.errors import CorpusError, StoreError
from index.random_pairs import measure_random_pairs

FINGERPRINT = "a" * 64


@pytest.fixture
def calibration(vectors: Callable[..., Any]) -> CorpusCalibration:
    return CorpusCalibration(
        FINGERPRINT, {"semantic": measure_random_pairs(vectors(120, seed=1), seed=5)}
    )


def test_a_directory_without_one_has_none(tmp_path: Path) -> None:
    assert read_corpus_calibration(tmp_path, FINGERPRINT) is None


def test_what_is_written_is_read(tmp_path: Path, calibration: CorpusCalibration) -> None:
    write_corpus_calibration(tmp_path, calibration)
    read = read_corpus_calibration(tmp_path, FINGERPRINT)
    assert read == calibration
    assert read.version == calibration.version
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]


def test_one_of_another_checkpoint_is_refused(
    tmp_path: Path, calibration: CorpusCalibration
) -> None:
    write_corpus_calibration(tmp_path, calibration)
    with pytest.raises(StoreError, match="was made with checkpoint aaaaaaaaaaaa, not with bbbb"):
        read_corpus_calibration(tmp_path, "b" * 64)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {**content, "format": 9},
        lambda content: {**content, "kinds": {"semantic": {}}},
        lambda content: {**content, "version": "0"},
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
        read_corpus_calibration(tmp_path, FINGERPRINT)


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
    with pytest.raises(StoreError, match="is no calibration"):
        read_corpus_calibration(tmp_path, FINGERPRINT)


def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / CALIBRATION_FILE).mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        read_corpus_calibration(tmp_path, FINGERPRINT)


def test_the_vectors_of_a_store_are_measured(
    open_store: Any, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.put([entry(str(number), f"text {number}") for number in range(130)])
    _, stored = store.vectors(store.changes_since(0).added)
    assert measure_store(store, seed=2) == measure_random_pairs(stored, seed=2)
    monkeypatch.setattr(corpus_calibration, "MAX_DOCUMENTS", 110)
    assert measure_store(store, seed=2).documents == 110
    store.delete([str(number) for number in range(129)])
    with pytest.raises(CorpusError, match="1 documents are too few"):
        measure_store(store)

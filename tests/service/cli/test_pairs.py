"""`longmatch pairs`: the pairs of a data directory, also after an interruption."""

import re
from functools import partial
from pathlib import Path

import pytest

import index.search.pairs
from tests.kit.command import Run
from tests.kit.corpora import json_lines


@pytest.fixture
def pairs(longmatch: Run, tmp_path: Path) -> Run:
    texts = (f"Colony {n} sends {n * n} foragers to the oak of nest {n % 3}." for n in range(7))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json_lines({"id": f"d{n}", "text": text} for n, text in enumerate(texts)))
    assert longmatch("index", corpus).status == 0
    return partial(longmatch, "pairs", tmp_path / "data", "-o", tmp_path / "pairs.jsonl")


def test_the_pairs_of_all_tiles_are_written(
    pairs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.search.pairs, "TILE", 2)
    assert pairs("--min-score", -1).status == 0
    assert len((tmp_path / "pairs.jsonl").read_bytes().splitlines()) == 21


def test_bounds_are_needed_and_must_be_calibrated(pairs: Run) -> None:
    assert "--min-score: give this" in pairs().err
    assert re.search(
        "--max-false-positive-rate: .*calibrate", pairs("--max-false-positive-rate", 0.1).err
    )

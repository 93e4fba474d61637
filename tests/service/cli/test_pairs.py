"""`longmatch pairs`: the pairs of a data directory, also after an interruption."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import index.search.pairs
import service.cli.pairs
from tests.kit.command import Run
from tests.kit.corpora import json_lines


@pytest.fixture
def pairs(longmatch: Run, tmp_path: Path) -> Run:
    texts = (f"Colony {n} sends {n * n} foragers to the oak of nest {n % 3}." for n in range(7))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json_lines({"id": f"d{n}", "text": text} for n, text in enumerate(texts)))
    assert longmatch("index", corpus).status == 0
    return partial(longmatch, "pairs", tmp_path / "data", "-o", tmp_path / "pairs.jsonl")


def test_an_interrupted_run_goes_on_and_writes_the_same(
    pairs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, position = tmp_path / "pairs.jsonl", tmp_path / "pairs.jsonl.position"
    monkeypatch.setattr(index.search.pairs, "TILE", 2)
    monkeypatch.setattr(service.cli.pairs, "_SECONDS_BETWEEN_POSITIONS", 0.0)
    assert pairs("--min-score", -1).status == 0
    whole = output.read_bytes()
    assert len(whole.splitlines()) == 21
    assert not position.exists()
    find = service.cli.pairs.find_pairs
    begun_at = []

    def interrupted(search: Any, first_tile: int = 0) -> Any:
        begun_at.append(first_tile)
        for done, found in find(search, first_tile):
            yield done, found
            if done == first_tile + 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(service.cli.pairs, "find_pairs", interrupted)
    assert pairs("--min-score", -1).status == 130
    assert position.exists()
    refused = pairs("--min-score", 0)
    assert refused.status == 2
    assert re.search("--output: .*other options", refused.err)
    assert pairs("--min-score", -1).status == 130
    monkeypatch.setattr(service.cli.pairs, "find_pairs", find)
    assert pairs("--min-score", -1).status == 0
    assert begun_at == [0, 3]
    assert output.read_bytes() == whole
    assert not position.exists()


def test_bounds_are_needed_and_must_be_calibrated(pairs: Run) -> None:
    assert "--min-score: give this" in pairs().err
    assert re.search(
        "--max-false-positive-rate: .*not measured", pairs("--max-false-positive-rate", 0.1).err
    )

"""The benchmark of searches on the real server, on few documents."""

from pathlib import Path

import pytest

from benchmarks.server import search
from encoder.checkpoint import load_checkpoint


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    monkeypatch.setattr(search, "ROUNDS", 2)
    monkeypatch.setattr("benchmarks.synthetic.stored_articles.SAMPLED", 120)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(search, "TEXTS", 3)
    measured = search.measure(tmp_path, 120, load_checkpoint(tiny_checkpoint), [1, 2], 0.2, 1)
    assert len(measured) == 15
    for one in measured.values():
        assert one["answers"] > 0
        assert one["refused"] == 0
        assert 0 < one["seconds_each"]["p50"] <= one["seconds_each"]["p99"]
    printed = search.table({"results": {"120": measured}})
    assert "120 documents; a search process has" in printed
    assert "| hybrid, aligned, by id, 2 clients" in printed

"""The benchmark of starts of the real server, on few documents."""

import sys
from pathlib import Path

import pytest

from benchmarks.server import starts
from encoder.checkpoint import load_checkpoint


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="page caches are asked for on Linux alone")
def test_a_small_run_is_measured_and_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    monkeypatch.setattr(starts, "ROUNDS", 1)
    monkeypatch.setattr("benchmarks.synthetic.stored_articles.SAMPLED", 120)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    measured = starts.measure(tmp_path, 120, load_checkpoint(tiny_checkpoint))
    assert len(measured) == 4
    for one in measured.values():
        assert 0 < one["ready"]["median"] <= one["whole"]["median"]
    assert "| after a stop, from a cold disk" in starts.table({"results": {"120": measured}})

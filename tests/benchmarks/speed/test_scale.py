"""The benchmark of a large collection, on a small one, with the real server."""

from pathlib import Path

import pytest

from benchmarks.speed import filters, scale
from benchmarks.speed.scale_steps import ALONE, BESIDE, LoadPlan
from encoder.checkpoint import load_checkpoint


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    monkeypatch.setattr(filters, "ROUNDS", 1)
    monkeypatch.setattr(filters, "QUERIES_A_ROUND", 5)
    monkeypatch.setattr(filters, "SHARES", {"50 %": 0.5, "1 %": 0.01})
    monkeypatch.setattr(scale, "ARTICLES", 20)
    monkeypatch.setattr(scale, "STARTS", 1)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    plan = LoadPlan(2, 0.5, 2, inserts_a_second=100.0, together=5)
    results = scale.measure(tmp_path, load_checkpoint(tiny_checkpoint), 5_000, plan)

    load = results["load"]
    assert 0 < load["inserts_a_second"] <= 101
    assert set(load["searches_a_second"]) == {ALONE, BESIDE}
    assert results["nlist"] > 1
    assert results["documents_at_start"] <= 5_000 + plan.inserts - 1_200
    assert len(results["starts"]) == 5
    assert all(one["ready"]["median"] > 0 for one in results["starts"].values())
    for name, one in results["filters"].items():
        assert one["recall_at_10"] > 0.9, name
    record = {"settings": {"documents": 5_000, "dimension": 16}, "results": results}
    printed = scale.table(record)
    assert "| after a kill, 499 changes to replay" in printed
    assert "| inserts a second" in printed

"""The benchmark of the precisions of the index, on few vectors."""

from pathlib import Path

import pytest

from benchmarks.common import make_record
from benchmarks.speed import index as speed_index
from benchmarks.speed import precision


@pytest.mark.slow
def test_every_precision_is_measured_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_index, "CLUSTERS", 20)
    monkeypatch.setattr(precision, "ROUNDS", 1)
    results = {}
    files = {one: tmp_path / one for one in precision.PRECISIONS}
    for one, file in files.items():
        results[one] = precision.measure_building(one, file, 5_000, 64, None)
        results[one] |= precision.measure_loading(one, file)
    vectors, queries = precision.read_or_sample(5_000, 64, None)
    for name, figures in precision.measure_searches(vectors, queries, files).items():
        results[name] |= figures
    assert results["fp32"]["recall_at_10_all_lists"] == 1.0
    assert results["int8"]["recall_at_10_all_lists"] > 0.95
    assert results["fp32"]["largest_error"] < 1e-6 < results["int8"]["largest_error"] < 0.01
    sizes = {name: one["file_bytes_a_vector"] for name, one in results.items()}
    assert sizes["fp32"] - sizes["fp16"] == pytest.approx(128, abs=1)
    assert sizes["fp32"] - sizes["int8"] == pytest.approx(192, abs=1)
    settings = {"vectors": "synthetic"}
    shown = precision.table(make_record("precision", "", settings, results))
    assert "5,000 vectors of 64 dimensions, synthetic" in shown
    assert all(f"| {name} " in shown for name in results)

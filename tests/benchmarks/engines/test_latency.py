from importlib.metadata import version

import pytest

from benchmarks.engines import latency

MILVUS = f"milvus milvus_lite-{version('milvus-lite')}"


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "ROUNDS", 1)
    monkeypatch.setattr(latency, "QUERIES_A_ROUND", 5)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    results = latency.measure(5_000, None)
    assert set(results) == {"faiss-int8", "faiss-fp32", MILVUS}
    for name, one in results.items():
        assert one["recall_at_10"] > 0.85, name
    assert results[MILVUS]["recall_at_10"] == 1.0  # compares all vectors
    printed = latency.table({"results": results})
    assert len(printed.splitlines()) == 2 + len(results)

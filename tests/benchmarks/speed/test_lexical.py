import pytest

from benchmarks.speed import lexical


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical, "ROUNDS", 1)
    monkeypatch.setattr(lexical, "QUERIES", 20)
    monkeypatch.setattr(lexical, "WRITES", 5)
    results = lexical.measure(120)
    assert results["recall_at_10"] > 0.95
    assert 5_000 < results["bytes_a_document"] < 100_000
    assert results["open_seconds"]["low"] > 0
    printed = lexical.table({"results": {"120": results}})
    assert "120 documents" in printed
    assert "recall@10" in printed

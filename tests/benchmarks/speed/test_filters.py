import pytest

from benchmarks.speed import filters


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "ROUNDS", 1)
    monkeypatch.setattr(filters, "QUERIES_A_ROUND", 5)
    monkeypatch.setattr(filters, "SHARES", {"50 %": 0.5, "1 %": 0.01})
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    results = filters.measure(5_000)
    figures = results["filters"]
    assert set(figures) == {
        *("unfiltered", "50 % scattered", "1 % scattered", "50 % clustered", "1 % clustered")
    }
    for name, one in figures.items():
        assert one["recall_at_10"] > 0.9, name
    assert figures["1 % scattered"]["recall_at_10"] == 1.0  # compared one by one
    printed = filters.table({"results": results})
    assert len(printed.splitlines()) == 2 + len(figures)


def test_what_is_clustered_lies_together() -> None:
    vectors, _ = filters.sample_vectors(5_000)
    numbers = filters.filter_numbers(vectors)
    for kind in filters.KINDS:
        assert sorted(numbers[kind].tolist()) == list(range(5_000))
    centres = {kind: vectors[numbers[kind] < 50].mean(axis=0) for kind in filters.KINDS}
    assert (centres["clustered"] ** 2).sum() > 2 * (centres["scattered"] ** 2).sum()

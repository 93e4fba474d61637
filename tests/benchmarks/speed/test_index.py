import pytest

from benchmarks.speed.index import DIMENSION, K, best_scores, sample_vectors


def test_vectors_are_seeded_of_unit_norm_and_clustered() -> None:
    vectors, queries = sample_vectors(5_000)
    again, _ = sample_vectors(5_000)
    assert vectors.shape == (5_000, DIMENSION)
    assert (vectors == again).all()
    assert abs((vectors**2).sum(1) - 1).max() < 1e-4
    best = best_scores(vectors, queries)
    cosines = vectors @ queries[0]
    assert sorted(best[0].tolist()) == pytest.approx(sorted(cosines.tolist())[-K:], abs=1e-6)
    assert best.mean() > 2 * abs(cosines).mean()

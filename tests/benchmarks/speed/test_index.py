import pytest

from benchmarks.speed.index import DIMENSION, K, draw_vectors, tenth_best_scores


def test_vectors_are_seeded_of_unit_norm_and_clustered() -> None:
    vectors, queries = draw_vectors(5_000)
    again, _ = draw_vectors(5_000)
    assert vectors.shape == (5_000, DIMENSION)
    assert (vectors == again).all()
    assert abs((vectors**2).sum(1) - 1).max() < 1e-4
    best = tenth_best_scores(vectors, queries)
    cosines = vectors @ queries[0]
    assert best[0] == pytest.approx(sorted(cosines.tolist())[-K], abs=1e-6)
    assert best.mean() > 2 * abs(cosines).mean()

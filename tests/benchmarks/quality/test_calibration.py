import numpy as np
import pytest

from benchmarks.common import SEED
from benchmarks.quality.calibration import MAPS, Stated, measure, table, try_thresholds
from index.lexical.scoring import rows_of_texts
from index.progress import SilentProgress
from index.search.corpus_calibration import Channels, measure_modes
from index.search.fusion import LinearFusion


def stated_at_random(count: int, *, shift: float, seed: int) -> Stated:
    """Sample labels of known probability; the first map states it, the second one that is off."""
    random = np.random.default_rng(seed)
    truth = random.uniform(0.2, 0.7, count)
    labels = (random.random(count) < truth).astype(np.int64)
    return Stated({MAPS[0]: truth, MAPS[1]: truth + shift}, labels)


@pytest.mark.slow
def test_thresholds_are_tried_on_other_pairs_and_laid_out() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(1_500, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = rows_of_texts(
        " ".join(f"w{n}" for n in row) for row in random.integers(99, size=(1_500, 9))
    )
    channels = Channels(vectors, words, LinearFusion(0.5))
    tried = try_thresholds(channels, measure_modes(channels, SilentProgress(), seed=SEED))
    assert set(tried) == {"semantic", "lexical", "hybrid"}
    for figures in tried.values():
        assert figures["documents"] == 1_500
        assert 0.005 < figures["fresh_pairs"] < 0.02
        assert 0.005 < figures["unseen_documents"] < 0.02
        assert figures["fresh_pairs"] != 0.01
    errors = measure({"papers": stated_at_random(300, shift=0.0, seed=1)})
    results = {
        mode: {"calibration_error": errors, "false_positives": {"papers": figures}}
        for mode, figures in tried.items()
    }
    shown = table({"results": results})
    assert f"{tried['hybrid']['fresh_pairs']:.2%}" in shown
    assert shown.count("papers") == 9
    assert all(shown.count(f"| {mode}") > 3 for mode in tried)

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from evaluation.baselines import tfidf_matrix
from index.errors import CorpusError
from training.data.sampling import find_neighbours, without_neighbours

WORDS = ["river", "stone", "music", "winter", "letter", "engine", "forest", "harbour", "bridge"]


def make_texts(number: int) -> list[str]:
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, size=4)) for _ in range(number)]


def test_neighbours_are_the_nearest_by_tfidf(tmp_path: Path) -> None:
    texts = [*make_texts(300), "unheard unseen"]
    found = find_neighbours(tmp_path / "n", texts)
    expected = cosine_similarity(tfidf_matrix(texts))
    between = found.between([3, 1, 300])
    assert np.allclose(between, expected[np.ix_([3, 1, 300], [3, 1, 300])], atol=1e-6)
    np.fill_diagonal(expected, -1)
    for place in range(len(texts)):
        best = np.sort(expected[place])[::-1][: found.nearest.shape[1]]
        assert np.allclose(found.similarities[place], np.maximum(best, 0), atol=1e-6)
        near = found.nearest[place][found.nearest[place] >= 0]
        assert place not in near
        assert np.allclose(expected[place, near], found.similarities[place, : len(near)], atol=1e-6)
    assert (found.nearest[300] == -1).all()


def test_found_once_and_again_for_other_texts(tmp_path: Path) -> None:
    texts = make_texts(20)
    find_neighbours(tmp_path / "n", texts)
    made = (tmp_path / "n" / "nearest.npy").stat().st_mtime_ns
    find_neighbours(tmp_path / "n", texts)
    assert (tmp_path / "n" / "nearest.npy").stat().st_mtime_ns == made
    assert len(find_neighbours(tmp_path / "n", texts[:15]).nearest) == 15
    (tmp_path / "n" / "words.npy").write_bytes(b"")
    with pytest.raises(CorpusError, match="damaged"):
        find_neighbours(tmp_path / "n", texts[:15])


def test_texts_without_a_word_in_common(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no word"):
        find_neighbours(tmp_path / "n", ["river", "stone"])
    assert not (tmp_path / "n").exists()


def test_texts_that_nobody_looked_at_share_nothing() -> None:
    nothing = without_neighbours(3)
    assert nothing.nearest.shape == (3, 0)
    assert not nothing.between([0, 2]).any()

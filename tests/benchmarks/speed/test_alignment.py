"""The benchmark of the second stage of search, on few documents."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed import alignment
from benchmarks.synthetic.articles import MEDIAN_BLOCKS, article_model
from index.lexical.terms import count_terms, is_pair


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(alignment, "ROUNDS", 2)
    monkeypatch.setattr(alignment, "QUERIES_A_ROUND", 2)
    monkeypatch.setattr(alignment, "REPEATS", 2)
    monkeypatch.setattr("benchmarks.synthetic.stored_articles.SAMPLED", 120)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    kernel = alignment.measure_kernel()
    assert set(kernel) == {"60", "96"}
    first = alignment.measure(tmp_path, 30)
    again = alignment.measure(tmp_path, 30)  # of the same directory
    assert set(first) - set(again) == {"build_seconds"}
    for name, one in first["search"].items():
        assert ("align" in one["stages"]) == name.endswith("aligned")
    of_parts = first["bytes_a_document"]
    assert of_parts["block vectors"] > MEDIAN_BLOCKS * 384  # two bytes for each number
    assert sum(of_parts[part] for part in alignment.PARTS) < of_parts["in all"]
    results = {"kernel": {"1": kernel}, "searches": {"30": again}}
    printed = alignment.table({"results": results})
    assert "| 200 candidates of 60 blocks, threads: 1" in printed
    assert "| 30 documents, hybrid, aligned" in printed


def test_articles_have_the_words_and_blocks_of_real_ones() -> None:
    model = article_model(1, 16, 24)
    articles = [model.article(number) for number in range(60)]
    assert model.article(7).document == articles[7].document
    counted = [count_terms(one.document.text) for one in articles]
    pairs = [sum(is_pair(term) for term in one) for one in counted]
    words = [len(one) - pairs[row] for row, one in enumerate(counted)]
    # Of 428 articles of Wikipedia: 931 and 617, in 2,617 words.
    assert 700 < np.median(words) < 1_100
    assert 450 < np.median(pairs) < 850
    assert 50 < np.median([one.receipt.blocks for one in articles]) < 70
    vectors = np.stack([one.vector for one in articles])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)

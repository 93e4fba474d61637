import numpy as np
import pytest

from benchmarks.speed.encoder import RoundResult, Task, fastest, measure_quality, summarise
from benchmarks.speed.encoders.timed_encoder import TimedEncoder
from encoder.arrays import Float32
from index.document import Document

NOTHING = np.empty((0, 1), dtype=np.float32)
DOCUMENTS = [Document(id=name, text=name) for name in "abcd"]
TASK = Task(DOCUMENTS, [100, 200, 300, 400], [[3, 0], [2, 1]])


def encoder(name: str) -> TimedEncoder:
    return TimedEncoder(name, "fp32", 1, lambda texts: texts, lambda _: NOTHING)


def rows(*cosines: float) -> Float32:
    """Vectors at the cosines to the first axis."""
    return np.array([[c, (1 - c * c) ** 0.5] for c in cosines], dtype=np.float32)


def test_figures_are_of_both_steps_and_ratios_to_the_reference() -> None:
    measured = {
        "a": [RoundResult(1.0, 4.0, NOTHING), RoundResult(0.5, 2.0, NOTHING)],
        "b": [RoundResult(1.0, 9.0, NOTHING), RoundResult(1.0, 4.0, NOTHING)],
    }
    encoders = [encoder("a"), encoder("b")]
    assert fastest(encoders, measured) == "a"
    results = summarise(encoders, measured, TASK, reference="b")
    assert results["a"]["tokens_per_second"] == {"median": 150.0, "low": 100.0, "high": 200.0}
    assert results["a"]["tokens_per_second_encoding"]["median"] == (500 / 4 + 500 / 2) / 2
    assert results["a"]["documents_per_second"] == pytest.approx(
        {"median": 0.6, "low": 0.4, "high": 0.8}
    )
    assert results["a"]["times_as_fast"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert results["b"]["times_as_fast"]["median"] == 1.0


def test_quality_counts_only_the_documents_that_take_part() -> None:
    # In the order of the rounds: d a c b. For the query d the best is a, then b.
    good = [RoundResult(1, 1, rows(1.0, 0.9)), RoundResult(1, 1, rows(0.1, 0.5))]
    bad = [RoundResult(1, 1, rows(1.0, 0.1)), RoundResult(1, 1, rows(0.9, 0.5))]
    qrels = {"d": {"a": 1, "absent": 2}, "c": {"absent": 1}, "absent": {"a": 1}, "b": {"a": 1}}
    results: dict[str, dict[str, float]] = {"good": {}, "bad": {}}
    measure_quality(results, {"good": good, "bad": bad}, TASK, qrels, query_ids=["d", "c"])
    assert results["good"] == {"queries": 1, "ndcg_at_10": 1.0}
    assert results["bad"]["ndcg_at_10"] == pytest.approx(1 / np.log2(4))

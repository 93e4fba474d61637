import json

import numpy as np
import pytest

from encoder.arrays import Float32
from evaluation.judgements import PairRows
from evaluation.metrics import evaluate_run
from evaluation.report import (
    PairTask,
    RetrievalTask,
    choose_reference,
    report_pairs,
    report_retrieval,
)
from evaluation.systems import rank, vector_system

IDS = tuple(f"d{n}" for n in range(40))
TOPICS = np.arange(40) // 8
QRELS = {
    IDS[n]: {IDS[m]: 1 for m in range(40) if m != n and TOPICS[m] == TOPICS[n]} for n in range(30)
}


def vectors(noise: float) -> Float32:
    chance = np.random.default_rng(1)
    drawn = np.eye(16, dtype=np.float32)[TOPICS]
    drawn += noise * chance.standard_normal((40, 16), dtype=np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


GOOD = vector_system("good", "little noise", vectors(0.05))
BAD = vector_system("bad", "much noise", vectors(0.6))
BOTH = {"good": [GOOD], "bad": [BAD]}
QUESTION = RetrievalTask(
    ids=IDS,
    query_ids=IDS[:30],
    rows=np.arange(30),
    tokens=np.array([512] * 10 + [513] * 20),
    qrels=QRELS,
)


def pair_rows(seed: int, count: int = 200) -> PairRows:
    sources, targets = np.random.default_rng(seed).integers(0, 40, (2, count))
    return PairRows(sources, targets, TOPICS[sources] == TOPICS[targets])


def test_the_reference() -> None:
    assert choose_reference(["semantic", "bm25", "tfidf"]) == "tfidf"
    assert choose_reference(["semantic", "bm25"]) == "semantic"


def test_retrieval_of_two_systems() -> None:
    report = report_retrieval(BOTH, QUESTION, "bad")
    json.dumps(report, allow_nan=False)
    good, bad = report["systems"]["good"], report["systems"]["bad"]
    alone = evaluate_run(rank(BAD, IDS, IDS[:30], np.arange(30)), QRELS)
    for measure, value in alone.items():
        assert bad[measure]["value"] == pytest.approx(value)
        assert bad[measure]["low"] < value < bad[measure]["high"] or value == 1
    assert good["nDCG@10"]["value"] == 1.0
    against = good["against"]["nDCG@10"]
    assert against["difference"] == pytest.approx(1 - bad["nDCG@10"]["value"])
    assert against["p"] < 0.01
    assert "against" not in bad
    assert {name: figures["queries"] for name, figures in bad["by_length"].items()} == {
        "<=512": 10,
        "513-2048": 20,
    }
    parts = [
        figures["nDCG@10"]["value"] * figures["queries"] for figures in bad["by_length"].values()
    ]
    assert sum(parts) / 30 == pytest.approx(bad["nDCG@10"]["value"])


def test_pairs_with_the_threshold_of_others() -> None:
    pairs = pair_rows(1)
    tokens = np.where(np.arange(200) < 50, 600, 9_000)
    report = report_pairs(BOTH, PairTask(pairs, pair_rows(2), tokens), "bad")
    json.dumps(report, allow_nan=False)
    assert report["threshold_chosen_on"] == "validation pairs"
    assert (report["pairs"], report["positive"]) == (200, int(pairs.labels.sum()))
    good, bad = report["systems"]["good"], report["systems"]["bad"]
    assert good["accuracy"]["value"] == 1.0
    assert good["AUC"]["value"] == 1.0
    assert bad["accuracy"]["value"] < 1
    assert good["against"]["accuracy"]["p"] < 0.01
    assert {name: figures["pairs"] for name, figures in bad["by_length"].items()} == {
        "513-2048": 50,
        ">8192": 150,
    }


def test_pairs_without_others_are_called_an_upper_bound() -> None:
    pairs = pair_rows(1)
    tokens = np.full(200, 600)
    bound = report_pairs({"bad": [BAD]}, PairTask(pairs, None, tokens), "bad")
    honest = report_pairs({"bad": [BAD]}, PairTask(pairs, pair_rows(2), tokens), "bad")
    assert bound["threshold_chosen_on"] == "the same pairs"
    upper, other = bound["systems"]["bad"], honest["systems"]["bad"]
    assert "accuracy" not in upper
    assert upper["accuracy_upper_bound"]["value"] >= other["accuracy"]["value"]
    assert upper["AUC"] == other["AUC"]
    positive = pairs.labels
    alike = PairRows(pairs.sources[positive], pairs.targets[positive], positive[positive])
    task = PairTask(alike, None, np.full(len(alike.labels), 600))
    assert "AUC" not in report_pairs({"bad": [BAD]}, task, "bad")["systems"]["bad"]  # of one label


def test_figures_of_seeds_are_their_means() -> None:
    task = PairTask(pair_rows(1, 60), pair_rows(2, 60), np.full(60, 100))
    models = {"both": [GOOD, BAD], "good": [GOOD, GOOD]}
    pairs = report_pairs(models, task, "good")["systems"]
    found = report_retrieval(models, QUESTION, "good")["systems"]
    alone = report_pairs(BOTH, task, "good")["systems"]
    ranked = report_retrieval(BOTH, QUESTION, "good")["systems"]
    for together, single, names in (
        (pairs, alone, ("accuracy", "F1", "AUC")),
        (found, ranked, ("nDCG@10", "recall@100")),
    ):
        for name in names:
            good, bad = (single[model][name]["value"] for model in ("good", "bad"))
            assert together["both"][name]["value"] == pytest.approx((good + bad) / 2)
            assert [figures[name] for figures in together["both"]["by_seed"]] == [good, bad]
            # Two equal seeds are no more certain than one: seeds are not resampled.
            assert together["good"][name] == single["good"][name]
            assert together["both"][name]["low"] <= together["both"][name]["value"]
    assert "by_seed" not in alone["good"]
    whole, half = alone["bad"]["against"]["accuracy"], pairs["both"]["against"]["accuracy"]
    assert half["difference"] == pytest.approx(whole["difference"] / 2)

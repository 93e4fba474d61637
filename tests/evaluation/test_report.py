import json

import numpy as np
import pytest

from encoder.arrays import Float32
from evaluation.judgements import PairRows
from evaluation.mentions import JudgementsWithoutMentions
from evaluation.metrics import evaluate_run, rank_exactly
from evaluation.report import (
    PairTask,
    RetrievalTask,
    choose_reference,
    leave_out,
    report_pairs,
    report_pairs_of_seeds,
    report_retrieval,
    report_retrieval_of_seeds,
    report_with_and_without_mentions,
)
from evaluation.systems import DEPTH, System, rank, vector_system
from index.errors import CorpusError
from index.vectors.vector_index import NO_VECTOR

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
QUESTION = RetrievalTask(
    ids=IDS,
    query_ids=IDS[:30],
    rows=np.arange(30),
    tokens=np.array([512] * 10 + [513] * 20),
    qrels=QRELS,
)


def pair_rows(seed: int) -> PairRows:
    sources, targets = np.random.default_rng(seed).integers(0, 40, (2, 200))
    return PairRows(sources, targets, TOPICS[sources] == TOPICS[targets])


def test_the_reference() -> None:
    assert choose_reference(["semantic", "bm25", "tfidf"], None) == "tfidf"
    assert choose_reference(["semantic", "bm25"], None) == "semantic"
    assert choose_reference(["semantic", "bm25"], "bm25") == "bm25"
    with pytest.raises(CorpusError, match="no 'lsa' in this run, only semantic, bm25"):
        choose_reference(["semantic", "bm25"], "lsa")


def test_retrieval_of_two_systems() -> None:
    report = report_retrieval([GOOD, BAD], QUESTION, "bad")
    json.dumps(report, allow_nan=False)
    good, bad = report["systems"]["good"], report["systems"]["bad"]
    alone = evaluate_run(rank_exactly(IDS, vectors(0.6), IDS[:30], vectors(0.6)[:30]), IDS, QRELS)
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


def test_retrieval_without_mentions() -> None:
    """Two documents of each topic are left out for each query: they are not in its ranking."""
    left_out = {
        name: frozenset(other for other in QRELS[name] if int(other[1:]) % 8 < 2)
        for name in IDS[:20]
    }
    left = {
        name: {d: 1 for d in QRELS[name] if d not in left_out.get(name, ())} for name in IDS[:25]
    }
    without = JudgementsWithoutMentions(left, left_out, 40)
    plain, rest = report_with_and_without_mentions([GOOD, BAD], QUESTION, "bad", without)
    assert plain == report_retrieval([GOOD, BAD], QUESTION, "bad")
    assert (plain["queries"], plain["judgements"]) == (30, 210)
    assert (rest["queries"], rest["judgements"]) == (25, sum(map(len, left.values())))
    assert rest["systems"]["good"]["nDCG@10"]["value"] == 1.0  # nothing left out comes first
    assert rest["systems"]["good"]["recall@10"]["value"] == 1.0
    figures, noisy = [], vectors(0.6)
    for row, name in enumerate(IDS[:25]):
        rows = [n for n, other in enumerate(IDS) if other not in left_out.get(name, ())]
        names = [IDS[n] for n in rows]
        run = rank_exactly(names, noisy[rows], [name], noisy[row : row + 1])
        figures.append(evaluate_run(run, names, left)["nDCG@10"])
    assert rest["systems"]["bad"]["nDCG@10"]["value"] == pytest.approx(np.mean(figures))


def test_later_documents_move_up_to_the_full_depth() -> None:
    ids = [f"d{n}" for n in range(300)]
    scores = -np.arange(300, dtype=np.float32)
    system = System("in order", "", lambda rows: np.tile(scores, (len(rows), 1)), GOOD.score_pairs)
    run = rank(system, ids, ["x", "y"], np.array([0, 0]), depth=DEPTH + 50)
    assert leave_out(run, ids, {}).rows.tolist() == [list(range(DEPTH))] * 2
    found = leave_out(run, ids, {"y": {f"d{n}" for n in range(50)} | {"unknown"}})
    assert found.rows.tolist() == [list(range(DEPTH)), list(range(50, 50 + DEPTH))]
    assert found.scores[1, -1] == scores[49 + DEPTH]
    few = leave_out(rank(system, ids[:3], ["x"], np.array([0])), ids[:3], {"x": {"d0", "d1"}})
    assert few.rows.tolist() == [[2, NO_VECTOR, NO_VECTOR]]
    assert few.scores[0].tolist() == [-2, -np.inf, -np.inf]


def test_pairs_with_the_threshold_of_others() -> None:
    pairs = pair_rows(1)
    tokens = np.where(np.arange(200) < 50, 600, 9_000)
    report = report_pairs([GOOD, BAD], PairTask(pairs, pair_rows(2), tokens), "bad")
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
    bound = report_pairs([BAD], PairTask(pairs, None, tokens), "bad")
    honest = report_pairs([BAD], PairTask(pairs, pair_rows(2), tokens), "bad")
    assert bound["threshold_chosen_on"] == "the same pairs"
    upper, other = bound["systems"]["bad"], honest["systems"]["bad"]
    assert "accuracy" not in upper
    assert upper["accuracy_upper_bound"]["value"] >= other["accuracy"]["value"]
    assert upper["AUC"] == other["AUC"]
    positive = pairs.labels
    alike = PairRows(pairs.sources[positive], pairs.targets[positive], positive[positive])
    task = PairTask(alike, None, np.full(len(alike.labels), 600))
    assert "AUC" not in report_pairs([BAD], task, "bad")["systems"]["bad"]  # of one label


def test_figures_of_seeds_are_their_means() -> None:
    task = PairTask(pair_rows(1), pair_rows(2), np.full(200, 100))
    models = {"both": [GOOD, BAD], "good": [GOOD, GOOD]}
    pairs = report_pairs_of_seeds(models, task, "good")["systems"]
    found = report_retrieval_of_seeds(models, QUESTION, "good")["systems"]
    alone = report_pairs([GOOD, BAD], task, "good")["systems"]
    ranked = report_retrieval([GOOD, BAD], QUESTION, "good")["systems"]
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

"""The CoLDE benchmark on a tiny corpus: real training, of a few steps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ablation.data import NDCG, find_folders
from benchmarks.colde.data import (
    READINGS,
    SHUFFLED,
    WHOLE,
    Answers,
    Truth,
    answer,
    read_corpora,
    read_truths,
    rows_of,
    shuffled,
)
from benchmarks.colde.plan import BOTH, COLDE, MEAN, SMITH, Size, plan_lengths, plan_table
from benchmarks.colde.run import KEPT, quality
from benchmarks.colde.runs import Bench, answers_of, cpu_seconds, is_kept, new_bench, train_all
from benchmarks.colde.table import plot, table
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.judgements import PairRows
from index.progress import SilentProgress
from tests.tools.corpora import write_two_topics

PARTS = ["train"] * 4 + ["valid"] * 2 + ["test"] * 3
TINY = Size(steps=2, documents=6, blocks=4, lengths=(2, 4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one corpus of two topics, nine documents each."""
    folder = tmp_path_factory.mktemp("colde") / "data" / "small"
    write_two_topics(folder, PARTS, ("train", "valid", "test"))
    return folder.parent


@pytest.fixture(scope="module")
def bench(folder: Path, tiny_checkpoint: Path) -> Bench:
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    folders = find_folders(folder, ())
    data = read_corpora(folders, encoder, folder.parent / "kept", SilentProgress())
    made = new_bench(data, read_truths(folders, data), folder.parent / "models", lambda _: None)
    plan = [*plan_table(0, TINY), *(one for row in plan_lengths(0, TINY).values() for one in row)]
    train_all(made, plan, None)
    return made


def test_test_pairs_and_queries_are_evaluated(bench: Bench) -> None:
    (truth,) = bench.truths
    assert len(truth.test.labels) == 15  # of six test documents
    assert {query[-1] for query in truth.queries} == {"6", "7", "8"}
    assert rows_of(truth) == [6, 7, 8, 15, 16, 17]


@pytest.mark.parametrize("reading", SHUFFLED)
@pytest.mark.parametrize("blocks", [2, 7, 40])
def test_shuffled_sections_are_the_document_in_another_order(reading: str, blocks: int) -> None:
    places = shuffled(blocks, SHUFFLED[reading], seed=1)
    assert sorted(places.tolist()) == list(range(blocks))
    assert places.tolist() != list(range(blocks))
    assert np.array_equal(places, shuffled(blocks, SHUFFLED[reading], seed=1))
    together = int((np.diff(places) == 1).sum())  # neighbours that stayed neighbours
    assert together >= blocks - min(SHUFFLED[reading], blocks)


def test_thresholds_come_from_validation_pairs_as_written() -> None:
    ids = tuple("abcdef")
    valid = PairRows(np.array([0, 1]), np.array([2, 2]), np.array([True, False]))
    test = PairRows(np.array([3, 4]), np.array([5, 5]), np.array([True, False]))
    angles = np.array([0.2, 1.0, 0.0, 0.3, 0.5, 0.0])
    whole = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    turned = whole.copy()
    turned[3] = [0, 1]  # shuffled, a matching pair is no longer found
    truth = Truth(ids, valid, test, {"a": {"c": 1}})
    found = answer(truth, {WHOLE: whole, "turned": turned})
    assert found.measures[WHOLE]["accuracy"] == 0.5  # the threshold lies between 0.2 and 1.0
    assert found.right["turned"].tolist() == [0.0, 0.0]
    assert found.ndcg.tolist() == [pytest.approx(0.5)]  # c is the second nearest of a


def answers(bench: Bench, *rows: str) -> Answers:
    plans = {one.row: one for one in plan_table(0, TINY)}
    (found,) = answers_of(bench, *(plans[row] for row in rows))
    return found


def test_every_model_answers_every_reading(bench: Bench) -> None:
    for one in plan_table(0, TINY):
        assert is_kept(bench, one)
        assert cpu_seconds(bench, one) > 0
        found = answers(bench, one.row)
        assert list(found.measures) == list(READINGS)
        assert len(found.right[WHOLE]) == 15
        assert len(found.ndcg) == 6
    mean = answers(bench, MEAN)
    assert len({figures["AUC"] for figures in mean.measures.values()}) == 1  # has no order


def test_both_is_the_mean_of_two_cosines(bench: Bench) -> None:
    alone, both = answers(bench, SMITH), answers(bench, SMITH, SMITH)
    assert both.measures == alone.measures
    assert answers(bench, SMITH, COLDE).ndcg.shape == alone.ndcg.shape


def test_what_is_kept_is_not_trained_again(bench: Bench) -> None:
    said: list[str] = []
    again = new_bench(bench.data, bench.truths, bench.work, said.append)
    train_all(again, plan_table(0, TINY), 0)
    assert not said
    train_all(again, plan_table(1, TINY), 0)
    assert len(said) == len(plan_table(1, TINY))
    assert all(text.endswith("left for the next call") for text in said)


def test_a_record_prints_and_plots(bench: Bench, tmp_path: Path) -> None:
    rows = quality(bench, 1, TINY)
    assert set(BOTH) <= set(rows)
    assert rows[SMITH]["against"] == {}
    assert 0 <= rows[COLDE]["against"]["accuracy"]["p"] <= 1
    assert 0 <= rows[COLDE]["corpora"]["small"][NDCG] <= 1
    lengths: Mapping[str, object] = {
        SMITH: {"2 blocks": {"accuracy": 0.5}, "4 blocks": {"accuracy": 0.75}}
    }
    record = {
        "settings": {"corpora": ["small"], "tokens_read": {"2 blocks": 28, "4 blocks": 56}},
        "results": {"reference": SMITH, "quality": rows, "lengths": lengths},
    }
    text = table(record)
    assert "| 28 (2 blocks) |" in text
    assert text.count("0.750") >= 1
    plot(record, tmp_path / "figure.svg")
    for name in ("figure.svg", "figure-shuffled.svg"):
        assert "<svg" in (tmp_path / name).read_text()


def test_what_is_kept_lies_beside_the_ablations() -> None:
    from benchmarks.ablation import run

    assert run.KEPT == KEPT

"""The CoLDE benchmark on a tiny corpus: real training, of a few steps."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import typer

from benchmarks.ablation.data import NDCG, find_folders
from benchmarks.colde.data import (
    READINGS,
    SHUFFLED,
    WHOLE,
    Answers,
    Truth,
    answer,
    auc_of,
    read_corpora,
    read_truths,
    rows_of,
    shuffled,
)
from benchmarks.colde.plan import (
    BOTH,
    COLDE,
    COLDE_MEAN,
    MEAN,
    SMITH,
    Size,
    documents_of,
    plan_batches,
    plan_lengths,
    plan_table,
)
from benchmarks.colde.rates import tune
from benchmarks.colde.run import KEPT, accuracy, batch_sizes, choose_rows, main, quality
from benchmarks.colde.runs import (
    Bench,
    answers_of,
    cpu_seconds,
    is_kept,
    keep,
    new_bench,
    train_all,
    validation_auc,
)
from benchmarks.colde.table import plot, table
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.judgements import PairRows
from index.progress import SilentProgress
from tests.tools.corpora import write_two_topics

PARTS = ["train"] * 4 + ["valid"] * 2 + ["test"] * 3
TINY = Size(steps=2, documents=6, blocks=4, lengths=(2, 4), batches=(3, 6), rates=(1e-4, 1e-2))


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
    data = read_corpora(folders, encoder, folder.parent / "kept" / "blocks", SilentProgress())
    kept = folder.parent / "kept" / "colde"
    made = new_bench(data, read_truths(folders, data), kept, lambda _: None)
    train_all(made, [one for models in plan_table(0, TINY).values() for one in models])
    rates = {row: one.rate for row, one in tune(made, [plan_table(0, TINY)]).items()}
    lengths = plan_lengths(0, TINY, rates)
    for plan in (lengths, plan_batches(0, TINY, rates)):
        train_all(made, [one for models in plan.values() for one in models])
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
    plans = plan_table(0, TINY)
    (found,) = answers_of(bench, *(plans[row][0] for row in rows))
    return found


def test_every_model_answers_every_reading(bench: Bench) -> None:
    for row, models in plan_table(0, TINY).items():
        for one in models:
            assert is_kept(bench, one)
            assert cpu_seconds(bench, one) > 0
        found = answers(bench, row)
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
    first, second = (
        [one for models in plan_table(seed, TINY).values() for one in models] for seed in (0, 1)
    )
    train_all(again, first, end=0)
    assert not said
    train_all(again, second, end=0)
    assert len(said) == len(second)
    assert all(text.endswith("left for the next call") for text in said)


def test_every_model_and_loss_has_the_same_rates_to_choose_from() -> None:
    shipped = Size()
    assert list(shipped.rates) == sorted(shipped.rates)
    assert len(shipped.rates) >= 3
    for seed in (0, 1):
        table_of_seed = plan_table(seed, shipped)
        assert (MEAN in table_of_seed) == (seed == 0)
        for row, models in table_of_seed.items():
            rates = [0.0] if row == MEAN else list(shipped.rates)
            assert [one.rate for one in models] == rates
            assert {one.row for one in models} == {row}
            alike = [
                {**one.settings["tuning"], "optimiser": {}, "model": one.model} for one in models
            ]
            assert all(one == alike[0] for one in alike)  # but for the rate


def test_the_rate_is_the_best_on_validation_pairs(bench: Bench, tmp_path: Path) -> None:
    """Planted vectors: one rate tells validation topics apart, the other one only test topics."""
    (truth,) = bench.truths
    topics = np.eye(2, dtype=np.float32)[[int(name.startswith("music")) for name in truth.ids]]
    valid = np.unique([truth.valid.sources, truth.valid.targets])
    mixed = topics.copy()
    mixed[valid] = [1, 0]
    good, bad = ({reading: [one] for reading in READINGS} for one in (topics, mixed))
    planted = new_bench(bench.data, bench.truths, tmp_path, lambda _: None)
    grids = [{SMITH: plan_table(seed, TINY)[SMITH]} for seed in (0, 1)]
    for best, worst in (one[SMITH] for one in grids):
        keep(planted, best, good, 1.0)
        keep(planted, worst, bad, 1.0)
    tuned = tune(planted, grids)[SMITH]
    assert tuned.validation == {1e-4: 1.0, 1e-2: 0.5}
    assert [(one.seed, one.rate) for one in tuned.models] == [(0, 1e-4), (1, 1e-4)]
    keep(planted, grids[0][SMITH][0], bad, 1.0)
    keep(planted, grids[0][SMITH][1], good, 1.0)
    undecided = tune(planted, grids)[SMITH]
    assert undecided.validation == {1e-4: 0.75, 1e-2: 0.75}
    assert undecided.rate == 1e-4
    assert tune(planted, grids[:1])[SMITH].rate == 1e-2


def test_rows_are_tuned_one_by_one(bench: Bench) -> None:
    grid = plan_table(0, TINY)
    tuned = tune(bench, [grid])
    assert list(tuned) == list(grid)
    for row, one in tuned.items():
        if row == MEAN:
            assert (one.rate, one.validation) == (0.0, {})
        else:
            measured = {model.rate: validation_auc(bench, model) for model in grid[row]}
            assert one.validation == pytest.approx(measured)


def test_a_rate_is_not_chosen_before_all_are_trained(bench: Bench) -> None:
    seeds = [plan_table(0, TINY), plan_table(1, TINY)]  # none of the second is trained
    assert tune(bench, seeds) == tune(bench, seeds[:1])
    assert tune(bench, seeds[1:]) == {}
    assert plan_lengths(0, TINY, {SMITH: 1e-4}).keys() == {SMITH}
    (shortest, longest) = plan_lengths(0, TINY, {SMITH: 1e-4})[SMITH]
    assert (shortest.rate, longest.rate) == (1e-4, 1e-4)
    assert is_kept(bench, longest)  # at full length it is the model of the table


def test_batches_of_every_size_see_as_many_documents() -> None:
    plans = plan_batches(1, Size(), {COLDE: 1e-3, SMITH: 1e-4, COLDE_MEAN: 3e-4})
    assert list(plans) == [COLDE, COLDE_MEAN]
    for models in plans.values():
        assert [documents_of(one) for one in models] == list(Size().batches)
        assert {one.seed for one in models} == {1}
        assert {one.tuning["steps"] * documents_of(one) for one in models} == {60 * 32}
        assert len({one.rate for one in models}) == 1
    assert plan_batches(0, Size(), {SMITH: 1e-4}) == {}
    of_table = plan_table(1, Size())[COLDE]  # the batch of the table is not trained again
    assert [one.settings for one in plans[COLDE]].count(of_table[-1].settings) == 1


def test_batches_are_evaluated_over_the_seeds_that_are_trained(bench: Bench) -> None:
    rates = {row: one.rate for row, one in tune(bench, [plan_table(0, TINY)]).items()}
    plans = [plan_batches(seed, TINY, rates) for seed in (0, 1)]  # none of the second is trained
    found = batch_sizes(bench, plans)
    assert {row: list(one) for row, one in found.items()} == {
        COLDE: ["3", "6"],
        COLDE_MEAN: ["3", "6"],
    }
    for row, cells in found.items():
        for model, cell in zip(plans[0][row], cells.values(), strict=True):
            expected = accuracy(answers_of(bench, model), WHOLE)
            assert cell == {
                "steps": model.tuning["steps"],
                "accuracy": pytest.approx(expected),
                "by_seed": [expected],
            }
    assert [cell["steps"] for cell in found[COLDE].values()] == [4, 2]


def test_rows_are_chosen_by_name() -> None:
    grids = [plan_table(seed, TINY) for seed in (0, 1)]
    assert choose_rows(grids, ()) == grids
    assert [list(one) for one in choose_rows(grids, [COLDE, MEAN])] == [[MEAN, COLDE], [COLDE]]
    with pytest.raises(typer.BadParameter, match="'CoLDE' is none of: mean of the blocks"):
        choose_rows(grids, ["CoLDE"])


def test_validation_pairs_that_are_told_apart_have_an_auc_of_1() -> None:
    pairs = PairRows(np.array([0, 0]), np.array([1, 2]), np.array([True, False]))
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    assert auc_of(vectors, pairs) == 1.0
    assert auc_of(vectors[[0, 2, 1]], pairs) == 0.0


def test_a_record_prints_and_plots(bench: Bench, tmp_path: Path) -> None:
    tuned = tune(bench, [plan_table(0, TINY)])
    rows = quality(bench, tuned)
    assert set(BOTH) <= set(rows)
    assert rows[SMITH]["against"] == {}
    assert 0 <= rows[COLDE]["against"]["accuracy"]["p"] <= 1
    assert 0 <= rows[COLDE]["corpora"]["small"][NDCG] <= 1
    lengths: Mapping[str, object] = {
        SMITH: {"2 blocks": {"accuracy": 0.5}, "4 blocks": {"accuracy": 0.75}}
    }
    rates = {row: one.record() for row, one in tuned.items() if one.validation}
    batches = {COLDE: {"3": {"steps": 4, "accuracy": 0.625, "by_seed": [0.5, 0.75]}}}
    results = {"reference": SMITH, "rates": rates, "quality": rows, "lengths": lengths}
    record = {
        "settings": {"corpora": ["small"], "tokens_read": {"2 blocks": 28, "4 blocks": 56}},
        "results": results | {"batches": batches},
    }
    json.dumps(record, allow_nan=False)
    text = table(record)
    assert "| 28 (2 blocks) |" in text
    assert " 3 (4 steps) |" in text
    assert " 0.625 (0.500-0.750) |" in text
    assert "(4 steps)" not in table(record | {"results": results})
    assert text.count("0.750") >= 1
    chosen, _, measured = text.partition("Test pairs and queries")
    assert [line.split("|")[1].strip() for line in chosen.splitlines()[4:-1]] == list(rates)
    for row in (SMITH, COLDE):
        rate = f"{tuned[row].rate:g}"
        for part, column in ((chosen, -2), (measured, 2)):
            (line,) = [line for line in part.splitlines() if line.startswith(f"| {row} ")][:1]
            assert line.split("|")[column].strip() == rate
    plot(record, tmp_path / "figure.svg")
    for name in ("figure.svg", "figure-shuffled.svg", "figure-batches.svg"):
        assert "<svg" in (tmp_path / name).read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("minutes", [None, 0.0])
def test_a_run_records_the_rates(
    folder: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    minutes: float | None,
) -> None:
    """Everything that it trains is kept, or no time is left for the rest."""
    monkeypatch.setattr("benchmarks.colde.run.Size", lambda: TINY)
    monkeypatch.setattr("benchmarks.common.RESULTS", tmp_path)
    work = folder.parent / "kept"
    main(
        folder,
        minutes=minutes,
        seeds=1 if minutes is None else 2,
        checkpoint=tiny_checkpoint,
        work=work,
    )
    (path,) = tmp_path.glob("*.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    rows = [row for row in plan_table(0, TINY) if row != MEAN]
    assert list(results["rates"]) == rows
    for row in rows:
        chosen = results["rates"][row]
        assert list(chosen["validation_auc"]) == ["0.0001", "0.01"]
        (settings,) = results["quality"][row]["settings"]
        assert settings["tuning"]["optimiser"]["document_rate"] == chosen["rate"]
    assert {row: len(one) for row, one in results["lengths"].items()} == dict.fromkeys(
        plan_lengths(0, TINY, dict.fromkeys(rows, 1.0)), 2
    )
    assert list(results["batches"]) == [COLDE, COLDE_MEAN]
    assert "AUC of the validation pairs by learning rate" in capsys.readouterr().out


def test_what_is_kept_lies_beside_the_ablations() -> None:
    from benchmarks.ablation import run

    assert run.KEPT == KEPT

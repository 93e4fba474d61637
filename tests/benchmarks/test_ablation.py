"""The ablations on a tiny corpus: real training, of a few steps."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ablation.cells import Cell, Outcomes, run_cells, summarise
from benchmarks.ablation.data import (
    NDCG,
    AblationData,
    evaluate_vectors,
    find_folders,
    pair_figures,
    read_data,
)
from benchmarks.ablation.parts import BLOCK_PRETRAINING, FROM_MEAN, MEAN, Size, document_level
from benchmarks.ablation.run import PARTS, plan
from benchmarks.ablation.table import plot, table
from benchmarks.ablation.training import Run, fit, make_recipe, new_reader, tokens_read
from encoder.arrays import Float32
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.export.create import load_model
from encoder.onnx_encoder import OnnxEncoder
from index.errors import CorpusError
from index.progress import SilentProgress
from tests.tools.corpora import write_two_topics
from training.run_files import read_curve

PARTS_OF_DOCUMENTS = ["train", "train", "train", "train", "valid", "valid", "valid", "test"]
TINY = Size(
    pretraining_steps=4,
    pretraining_documents=4,
    tuning_steps=3,
    tuning_documents=4,
    text_blocks=3,
    hidden_size=16,
    sentence_layers=1,
    steps=3,
    documents=8,
    block_pretraining_steps=2,
    blocks=4,
    lengths=(2, 4),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one corpus of two topics, eight documents each; its test pairs are no pairs."""
    folder = tmp_path_factory.mktemp("ablation") / "data" / "small"
    write_two_topics(folder, PARTS_OF_DOCUMENTS, ("train", "valid"))
    (folder / "pairs.test.jsonl.gz").write_text("never read")
    return folder.parent


@pytest.fixture(scope="module")
def data(folder: Path, tiny_checkpoint: Path) -> AblationData:
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    return read_data(find_folders(folder, ()), encoder, folder.parent / "kept", SilentProgress())


@pytest.fixture(scope="module")
def models(folder: Path) -> Path:
    return folder.parent / "models"


@pytest.fixture(scope="module")
def outcomes(data: AblationData, models: Path) -> Outcomes:
    return run_cells(plan(PARTS, data, 2, TINY), data, models, None, lambda _: None)


def settings_of(outcomes: Outcomes, part: str, row: str) -> dict[str, dict[str, object]]:
    return dict(outcomes[part][row][0].settings)


def test_every_model_is_trained_and_evaluated(outcomes: Outcomes, data: AblationData) -> None:
    assert list(outcomes["pretraining"]) == ["NP", "WP", "SP", "WP+SP"]
    assert list(outcomes[BLOCK_PRETRAINING]) == ["NP", "SP"]
    combinations = ["normal", "sum_concat", "mean_concat", "attention", FROM_MEAN, MEAN]
    assert list(outcomes["combinations, pairs"]) == combinations
    assert list(outcomes["combinations, links"]) == combinations
    assert list(outcomes[f"length, {FROM_MEAN}"]) == ["2 blocks", "4 blocks"]
    for part in outcomes.values():
        for row, of_seeds in part.items():
            assert [one.seed for one in of_seeds] == ([0] if row == MEAN else [0, 1]) or (
                part is outcomes[f"length, {MEAN}"] and len(of_seeds) == 1
            )
            for one in of_seeds:
                assert len(one.validation[0].ndcg) == 6  # validation queries
                assert len(one.validation[0].scores) == 15  # validation pairs
    first, second = (one.validation[0].scores for one in outcomes["pretraining"]["NP"])
    assert not np.array_equal(first, second)


def test_two_objectives_read_as_much_as_one(outcomes: Outcomes) -> None:
    alone = settings_of(outcomes, "pretraining", "WP")["pretraining"]
    both = settings_of(outcomes, "pretraining", "WP+SP")["pretraining"]
    assert both["objectives"] == ["wp", "sp"]
    assert 2 * int(str(both["steps"])) == alone["steps"] == TINY.pretraining_steps
    assert "pretraining" not in settings_of(outcomes, "pretraining", "NP")


def test_a_document_level_is_made_beside_a_checkpoint_with_more_channels(
    data: AblationData,
) -> None:
    shipped = replace(data, checkpoint=load_checkpoint(DEFAULT_CHECKPOINT))
    model = document_level(shipped, 0, "normal")
    assert model.config.dimension == shipped.checkpoint.block_dimension


def test_pretraining_over_block_vectors_comes_before_the_same_tuning(outcomes: Outcomes) -> None:
    alone, before = (settings_of(outcomes, BLOCK_PRETRAINING, row) for row in ("NP", "SP"))
    assert {**before, "pretraining": None} == {**alone, "pretraining": None}
    assert before["pretraining"]["objectives"] == ["sp"]
    assert before["pretraining"]["steps"] == TINY.block_pretraining_steps
    scores = [outcomes[BLOCK_PRETRAINING][row][0].validation[0].scores for row in ("NP", "SP")]
    assert not np.array_equal(*scores)


def test_the_mean_is_the_mean_of_the_blocks_read(outcomes: Outcomes, data: AblationData) -> None:
    (corpus,) = data.corpora
    vectors = [
        corpus.encoded.archive.vectors(row)[:2].astype(np.float32).mean(0)
        for row in corpus.encoded.rows.tolist()
    ]
    means = np.stack([vector / np.linalg.norm(vector) for vector in vectors])
    expected = evaluate_vectors(corpus, means)
    (found,) = outcomes[f"length, {MEAN}"]["2 blocks"][0].validation
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    (longer,) = outcomes[f"length, {MEAN}"]["4 blocks"][0].validation
    assert np.abs(longer.scores - found.scores).max() > 1e-3


@pytest.mark.slow
def test_what_is_kept_is_not_run_again(
    outcomes: Outcomes, data: AblationData, models: Path
) -> None:
    def refuse(_: Path) -> list[Float32]:
        raise AssertionError("run again")

    cells = [replace(cell, encode=refuse) for cell in plan(PARTS, data, 2, TINY)]
    again = run_cells(cells, data, models, 0, lambda _: None)
    assert summaries(again, data) == summaries(outcomes, data)
    assert not [path for path in models.iterdir() if path.is_dir()]  # no state of a run is left
    other = replace(cells[0], settings={**cells[0].settings, "more": 1})
    with pytest.raises(AssertionError, match="run again"):
        run_cells([other], data, models, None, lambda _: None)


def test_no_model_is_started_when_the_time_is_up(data: AblationData, tmp_path: Path) -> None:
    said: list[str] = []
    assert run_cells(plan(["length"], data, 1, TINY), data, tmp_path, 0, said.append) == {}
    assert said[0] == f"length, {MEAN}, 2 blocks, seed 0: left for the next call"


@pytest.mark.slow
def test_the_record_is_formatted_and_plotted(
    outcomes: Outcomes, data: AblationData, tmp_path: Path
) -> None:
    record = {
        "settings": {"corpora": list(data.names), "tokens_read": {"2 blocks": 20, "4 blocks": 40}},
        "results": json.loads(json.dumps(summaries(outcomes, data), allow_nan=False)),
    }
    text = table(record)
    assert "pretraining (validation; p against NP)" in text
    assert "| WP+SP " in text
    assert "0.959" in text  # the paper's
    plot(record, tmp_path / "curve.svg")
    assert "tokens read" in (tmp_path / "curve.svg").read_text()
    plot({**record, "results": {}}, tmp_path / "nothing.svg")
    assert not (tmp_path / "nothing.svg").exists()


def test_seeds_are_averaged_and_compared(outcomes: Outcomes, data: AblationData) -> None:
    rows = outcomes["combinations, pairs"]
    summary = summarise(rows, data)
    assert summary["reference"] == "normal"
    assert summary["rows"]["normal"]["against"] == {}
    row = summary["rows"]["attention"]
    by_seed = [one.validation[0].ndcg.mean() for one in rows["attention"]]
    assert row["by_seed"] == pytest.approx(by_seed)
    assert row["corpora"]["small"][NDCG] == pytest.approx(np.mean(by_seed))
    reference = np.mean([one.validation[0].ndcg.mean() for one in rows["normal"]])
    assert row["against"][NDCG]["difference"] == pytest.approx(np.mean(by_seed) - reference)


def test_a_threshold_is_chosen_on_other_pairs_than_it_is_tried_on(data: AblationData) -> None:
    (corpus,) = data.corpora
    labels = corpus.valid_pairs.labels
    right = pair_figures(corpus, labels.astype(np.float32))
    assert right == {"accuracy": 1.0, "F1": 1.0, "AUC": 1.0}
    # Scores that say nothing: the best threshold for the very same pairs would be right for most.
    flat = pair_figures(corpus, np.zeros(len(labels), dtype=np.float32))
    assert flat["AUC"] == 0.5
    assert flat["accuracy"] <= max(labels.mean(), 1 - labels.mean())


def test_the_last_weights_count_and_the_loss_falls(data: AblationData, tmp_path: Path) -> None:
    recipe = make_recipe(
        1,
        {
            "steps": 8,
            "documents": 56,  # all pairs
            "max_blocks": 4,
            "objectives": ["pairs"],
            "optimiser": {"document_rate": 3e-3},
        },
    )
    fit(load_model(data.checkpoint), Run(data, new_reader(data, 4), recipe), tmp_path)
    ends = [one for one in read_curve(tmp_path / "curve.jsonl") if "validation" in one]
    assert [one["step"] for one in ends] == [0, 8]
    assert ends[0]["validation"] > ends[1]["validation"] > 0


def test_tokens_are_counted_up_to_the_last_block_read(data: AblationData) -> None:
    (corpus,) = data.corpora
    archive = corpus.encoded.archive
    by_hand = [sum(map(len, archive.blocks(row)[:3])) for row in range(len(archive))]
    assert tokens_read(data, 3) == round(np.mean(by_hand))
    assert tokens_read(data, 10_000) == round(len(archive.tokens) / len(archive))


def test_corpora_are_named_or_found(folder: Path, tmp_path: Path) -> None:
    assert [path.name for path in find_folders(folder, ["small"])] == ["small"]
    with pytest.raises(CorpusError, match=r"'large' lacks one of corpus.jsonl.gz, pairs.train"):
        find_folders(folder, ["large"])
    for wrong in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CorpusError, match="no folder in it has corpus"):
            find_folders(wrong, ())


def summaries(outcomes: Outcomes, data: AblationData) -> dict[str, object]:
    return {part: summarise(rows, data) for part, rows in outcomes.items()}


def cells_of(cells: Sequence[Cell]) -> set[tuple[str, str, int]]:
    return {(cell.part, cell.row, cell.seed) for cell in cells}


def test_seeds_come_one_after_another(data: AblationData) -> None:
    one, two = plan(PARTS, data, 1, TINY), plan(PARTS, data, 2, TINY)
    assert cells_of(two[: len(one)]) == cells_of(one)
    assert {cell.seed for cell in two[len(one) :]} == {1}

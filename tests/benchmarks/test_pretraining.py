"""The benchmark of pretraining at a tiny size: from texts to the table, resumed, and refused."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pretraining import runs
from benchmarks.pretraining.plan import (
    ARCHITECTURES,
    ERNIE_DOC,
    PRETRAINED,
    RANDOM,
    SMITH,
    Size,
    blocks_of,
    creation,
    pretraining,
    tuning,
)
from benchmarks.pretraining.run import SIZE, measure_all
from benchmarks.pretraining.runs import Bench, open_start, open_work, pretrain
from benchmarks.pretraining.scale import measure, write_documents
from benchmarks.pretraining.table import plot, scale_table, table
from encoder.export.create import Recipe
from tests.tools.corpora import write_topics, write_two_topics
from training.progress import SilentTrainingProgress
from training.recipe import parse_training_recipe, pretrains, reads_tokens_only

TINY = Size(
    vocabulary=120,
    files=1,
    hidden_size=16,
    layers=1,
    tokens=64,
    block_length=16,
    segment_length=32,
    pretraining_steps={SMITH: 6, ERNIE_DOC: 6},
    pretraining_documents=4,
    tuning_steps={SMITH: 2, ERNIE_DOC: 2},
    tuning_documents=8,
    seeds=(0, 1),
    validations=3,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("pretraining")
    plain = write_topics(folder / "texts.jsonl", 40)
    texts = folder / "texts.jsonl.gz"
    texts.write_bytes(gzip.compress(plain.read_bytes()))
    parts = ["train"] * 5 + ["valid"] * 2 + ["test"] * 3
    judged = write_two_topics(folder / "topics", parts, ("train", "valid", "test"))
    work = folder / "work"
    open_work(work, TINY, [texts], judged)
    return Bench(TINY, (texts,), judged, work, print, SilentTrainingProgress())


@pytest.fixture(scope="module")
def record(bench: Bench) -> dict[str, Any]:
    return measure_all(bench, ARCHITECTURES, 1)


def test_everything_is_measured_from_both_starts(record: dict[str, Any], bench: Bench) -> None:
    assert list(record["results"]) == [SMITH, ERNIE_DOC]
    for name, parts in ((SMITH, {"words", "blocks"}), (ERNIE_DOC, {"words", "order"})):
        one = record["results"][name]
        run = one["pretraining"]
        assert (run["steps"], run["documents"]) == (6, 24)
        assert [point["step"] for point in run["validation"]] == [0, 2, 4, 6]
        assert run["best"].keys() == {"loss", *parts}
        assert run["best"]["loss"] == min(point["loss"] for point in run["validation"])
        assert run["best"]["loss"] == pytest.approx(sum(run["best"][part] for part in parts))
        assert sum(len(one) for one in (run["training"],)) == 6
        for begins in (RANDOM, PRETRAINED):
            ends = one["tuning"][begins]
            assert len(ends["before"]) == len(ends["after"]) == 2
            assert len(one["pairs"]["systems"][begins]["by_seed"]) == 2
        assert 0 <= one["retrieval"]["systems"][PRETRAINED]["against"]["nDCG@10"]["p"] <= 1
        assert "against" not in one["retrieval"]["systems"][RANDOM]
        assert one["documents_searched"] < 30  # none that fine-tuning saw


def test_a_pretrained_model_differs_from_its_start_and_keeps_its_tokenizer(
    bench: Bench, record: dict[str, Any]
) -> None:
    del record  # is measured first
    start, trained = open_start(bench, SMITH, 0), pretrain(bench, SMITH)
    assert trained.fingerprint != start.fingerprint
    assert trained.files["tokenizer.json"] == start.files["tokenizer.json"]
    assert open_start(bench, SMITH, 1).fingerprint != start.fingerprint


def test_the_same_command_trains_nothing_again(
    bench: Bench, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("everything is kept")

    monkeypatch.setattr(runs, "run_training", refuse)
    assert measure_all(bench, ARCHITECTURES, 1)["results"] == record["results"]


def test_the_table_and_the_curves(record: dict[str, Any], tmp_path: Path) -> None:
    printed = table(record)
    assert "| SMITH (WP+SP)" in printed
    assert printed.count("pretrained") == 4
    assert "masked blocks" in printed
    plot(record, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")


def test_the_folder_of_another_run_is_refused(bench: Bench) -> None:
    open_work(bench.work, TINY, bench.texts, bench.judged)
    with pytest.raises(ValueError, match="is of another run: size differs"):
        open_work(bench.work, replace(TINY, layers=2), bench.texts, bench.judged)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("size", [TINY, SIZE], ids=["tiny", "real"])
def test_both_stages_read_the_same_tokens_of_a_document(architecture: str, size: Size) -> None:
    made = Recipe.model_validate(creation(architecture, size))
    tables: list[Callable[[], dict[str, Any]]] = [
        lambda: pretraining(architecture, size),
        lambda: tuning(architecture, size, 0),
    ]
    for one in tables:
        recipe = parse_training_recipe(one())
        assert recipe.max_blocks == made.max_blocks == blocks_of(architecture, size)
        assert reads_tokens_only(recipe)
        assert recipe.max_blocks * made.block_length == size.tokens
    assert pretrains(parse_training_recipe(tables[0]()))


def test_the_cost_of_a_corpus_before_the_first_step(tmp_path: Path) -> None:
    found = measure(tmp_path, 60)
    write_documents(tmp_path / "again.jsonl", 60)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "corpus.jsonl").read_bytes()
    assert found["text_bytes"] == (tmp_path / "corpus.jsonl").stat().st_size
    assert found["disk_bytes"] < 2 * found["text_bytes"]
    assert found["seconds_to_first_step"] > 0
    assert "| 60 " in scale_table({"results": {"60": found}})

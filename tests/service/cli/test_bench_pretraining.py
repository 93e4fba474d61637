"""`longmatch bench models` with models that are pretrained first, on a tiny corpus."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tools.command import Run
from tests.tools.corpora import write_topics, write_two_topics
from training.comparison import pretraining

PARTS = ["train"] * 5 + ["valid"] * 2 + ["test"] * 3
RECIPE = """
name = "tiny-smith"
architecture = "smith"
block_length = 16
max_blocks = 16
long_sentence = "split"
language = "en"
dimension = 32
initialise_from_bert = false
begin_as_mean = false
[model]
hidden_size = 32
intermediate_size = 64
attention_heads = 4
sentence_layers = 1
document_layers = 1
"""
PLAN = """
name = "tiny"
budget_seconds = 60
pretraining_steps = 4
seeds = [0, 1]
lengths = [64]
timed_documents = 1
[training]
documents = 8
max_blocks = 8
sentence_level = { trained = "all", blocks = 8 }
objective = [{ kind = "pairs" }]
[pretraining]
documents = 4
max_blocks = 8
optimiser = { document_rate = 1e-2, sentence_rate = 1e-2 }
sentence_level = { trained = "all", blocks = 8 }
[[model]]
key = "np"
name = "SMITH-NP"
recipe = "smith.toml"
rates = [1e-3]
[[model]]
key = "wp-sp"
name = "SMITH-WP+SP"
recipe = "smith.toml"
pretraining = { objective = [{ kind = "wp+sp" }] }
rates = [1e-3]
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "topics"
    return write_two_topics(folder, PARTS, ("train", "valid", "test"))


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[str], str] = str) -> Path:
        (tmp_path / "smith.toml").write_text(RECIPE)
        path = tmp_path / "plan.toml"
        path.write_text(change(PLAN))
        return path

    return write


def result_of(output: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((output / "result.json").read_text())
    return result


@pytest.mark.slow
def test_a_model_is_pretrained_once_and_tuned_from_there(
    longmatch: Run,
    tiny_bert: Path,
    corpus: Path,
    plan: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, output = write_topics(tmp_path / "texts.jsonl", 30), tmp_path / "out"
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan(), "-o", output]
    command += ["--pretraining-corpus", texts, "--budget-steps", 4, "--threads", 1]
    answer = longmatch(*command)
    assert answer.status == 0, answer.err
    rows = result_of(output)["models"]
    assert rows["np"]["pretraining"] is None
    found = rows["wp-sp"]["pretraining"]
    assert (found["steps"], found["documents"]) == (4, 10 + 27)  # the tenth of texts is held out
    assert found["figure"] == "loss of held-out documents"
    assert found["best"] < found["before"]
    assert "## Pretraining" in answer.out
    # The same random weights and batches would give the same vectors, without what lay between.
    vectors = [np.load(output / f"work/vectors/{key}-rate-0.001-seed-0.npy") for key in rows]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-2
    starts = output / "work" / "starts"
    made = {one.name for one in starts.iterdir()}
    assert made == {"np-seed-0", "np-seed-1", "wp-sp-seed-0", "wp-sp-pretrained"}

    lines = [shlex.split(line)[1:] for line in rows["wp-sp"]["commands"][1]]
    assert [line[1] for line in lines] == ["create-checkpoint", "train", "train"]
    pretrained = starts / "wp-sp-pretrained"
    kept = (pretrained / "weights.safetensors").read_bytes()
    for name in ("wp-sp-seed-0", "wp-sp-pretrained"):
        shutil.rmtree(starts / name)
    for line in ([*lines[0], "--precision", "fp32"], lines[1]):
        again = longmatch(*line)
        assert again.status == 0, again.err
    assert (pretrained / "weights.safetensors").read_bytes() == kept
    report = json.loads((pretrained / "training" / "report.json").read_text())
    assert report["best"] == pytest.approx(found["best"], rel=1e-6)

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is pretrained again")

    monkeypatch.setattr(pretraining, "run_training", refuse)
    assert longmatch(*command).status == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda plan: plan.replace("pretraining_steps = 4\n", ""), "pretraining_seconds or"),
        (
            lambda plan: plan.replace('"wp+sp"', '"links"'),
            "pretraining.objective: must be of texts",
        ),
        (lambda plan: plan.replace('"pairs"', '"wp"'), "wp is pretraining, which has a table"),
        (lambda plan: plan.replace('"wp+sp"', '"reorder"'), 'objective "reorder" pretrains a'),
        (
            lambda plan: plan.replace("pretraining = { ", "pretraining = { steps = 3, "),
            "pretraining.steps is set by the comparison",
        ),
        (
            lambda plan: plan.replace("pretraining = { ", "pretraining = { max_blocks = 9, "),
            "pretraining.sentence_level.blocks is 8, under the 9",
        ),
    ],
    ids=["no budget", "links", "no pairs", "reorder", "steps", "blocks"],
)
def test_what_cannot_be_pretrained_is_refused_before_the_work(
    longmatch: Run,
    tiny_bert: Path,
    corpus: Path,
    plan: Callable[..., Path],
    tmp_path: Path,
    change: Callable[[str], str],
    error: str,
) -> None:
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan(change)]
    answer = longmatch(*command, "-o", tmp_path / "out")
    assert answer.status == 2
    assert "--plan: " in answer.err
    assert error in answer.err
    assert not (tmp_path / "out").exists()


def test_texts_that_nothing_reads_are_refused(
    longmatch: Run, tiny_bert: Path, corpus: Path, plan: Callable[..., Path], tmp_path: Path
) -> None:
    command = [
        "bench",
        "models",
        corpus,
        "--bert",
        tiny_bert,
        "--plan",
        plan(),
        "-o",
        tmp_path / "o",
    ]
    texts = write_topics(tmp_path / "texts.jsonl", 3)
    one = longmatch(*command, "--models", "np", "--pretraining-corpus", texts)
    assert (one.status, "no model of the plan is pretrained" in one.err) == (2, True)
    (tmp_path / "pages").mkdir()
    shutil.copy(texts, tmp_path / "pages" / "page.txt")
    two = longmatch(*command, "--pretraining-corpus", tmp_path / "pages")
    assert (two.status, "has no corpus.jsonl" in two.err) == (2, True)


def test_a_budget_of_pretraining_below_its_pace_is_refused(
    longmatch: Run, tiny_bert: Path, corpus: Path, plan: Callable[..., Path], tmp_path: Path
) -> None:
    seconds = plan(lambda text: text.replace("pretraining_steps = 4", "pretraining_seconds = 1e-6"))
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", seconds]
    answer = longmatch(*command, "-o", tmp_path / "out", "--models", "wp-sp", "--budget-steps", 2)
    assert answer.status == 2
    assert "wp-sp: pretraining_seconds is too small: a step takes" in answer.err
    work = tmp_path / "out" / "work"
    pace = json.loads((work / "cells" / "pace-wp-sp-pretraining.json").read_text())
    assert pace["seconds_per_step"] > 0
    assert not (work / "runs" / "wp-sp-pretraining").exists()

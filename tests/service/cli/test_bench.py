"""`longmatch bench models` as a user types it, on a tiny corpus and tiny models."""

import io
import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from filelock import FileLock

from encoder.checkpoint import load_checkpoint
from tests.tools.command import Run, run_main
from tests.tools.corpora import write_two_topics
from tests.tools.refused_comparison import refusal_of

PARTS = ["train"] * 5 + ["valid"] * 2 + ["test"] * 3
RECIPE = """
name = "{name}"
architecture = "{architecture}"
block_length = 16
max_blocks = 16
long_sentence = "split"
language = "en"
dimension = 32
initialise_from_bert = true
begin_as_mean = false
[model]
{model}
"""
PLAN = """
name = "tiny"
budget_seconds = 60
seeds = [0, 1]
lengths = [8, 16, 64, 4096]
timed_documents = 2
[training]
documents = 8
max_blocks = 8
objective = [{ kind = "links" }]
[[model]]
key = "smith"
name = "SMITH"
recipe = "smith.toml"
create = { begin_as_mean = true }
rates = [1e-3, 1e-2]
[[model.reported]]
data = "Wiki65K"
source = "SMITH, table 5"
accuracy = 0.9585
[[model]]
key = "han"
name = "HAN"
recipe = "han.toml"
training = { sentence_level = { trained = "all", blocks = 8 } }
rates = [1e-3, 1e-2]
[[model]]
key = "ernie-doc"
name = "ERNIE-Doc"
recipe = "ernie-doc.toml"
training = { sentence_level = { trained = "all", blocks = 8 } }
rates = [1e-3]
"""
MODELS = {
    "smith": 'sentence_layers = 2\ndocument_layers = 1\ncombine = "attention"\nattention_size = 8',
    "han": "paragraph_blocks = 0",
    "ernie-doc": "sentence_layers = 2\nmemory_length = 8",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "topics"
    return write_two_topics(folder, PARTS, ("train", "valid", "test"))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plan(tmp_path_factory.mktemp("plan"))


class Comparison(NamedTuple):
    """A finished comparison: its folder, and what the command printed."""

    folder: Path
    printed: str


@pytest.fixture(scope="module")
def compare(tiny_bert: Path, corpus: Path, plan: Path) -> Callable[..., Comparison]:
    """Return a function that compares into a folder."""
    common = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan, "--threads", 1]

    def run(folder: Path, *arguments: object) -> Comparison:
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
            assert run_main(patch, *common, "-o", folder, *arguments) == 0
        return Comparison(folder, printed.getvalue())

    return run


@pytest.fixture(scope="module")
def whole(
    compare: Callable[..., Comparison], tmp_path_factory: pytest.TempPathFactory
) -> Comparison:
    return compare(tmp_path_factory.mktemp("whole") / "out", "--budget-steps", 36)


@pytest.fixture(scope="module")
def small(
    compare: Callable[..., Comparison], tmp_path_factory: pytest.TempPathFactory
) -> Comparison:
    """Return a comparison of one model, trained once."""
    folder = tmp_path_factory.mktemp("small")
    plan = write_plan(folder, once)
    options = ["--plan", plan, "--models", "smith", "--budget-steps", 3]
    return compare(folder / "out", *options)


def write_plan(folder: Path, change: Callable[[str], str] = str) -> Path:
    for name, model in MODELS.items():
        recipe = RECIPE.format(name=f"tiny-{name}", architecture=name, model=model)
        (folder / f"{name}.toml").write_text(recipe)
    path = folder / "plan.toml"
    path.write_text(change(PLAN))
    return path


def once(plan: str) -> str:
    """Return a plan with one seed and one rate for each model."""
    return plan.replace("seeds = [0, 1]", "seeds = [0]").replace("[1e-3, 1e-2]", "[1e-3]")


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without what is measured anew, and where it lies."""
    rows = {key: {**one, "commands": None} for key, one in result["models"].items()}
    return {**result, "speed": None, "models": rows}


@pytest.mark.slow
def test_a_stopped_comparison_resumes_to_the_same_result(
    longmatch: Run,
    start_longmatch: Callable[..., subprocess.Popen[bytes]],
    tiny_checkpoint: Path,
    tiny_bert: Path,
    corpus: Path,
    plan: Path,
    whole: Comparison,
    tmp_path: Path,
) -> None:
    common = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan]
    common += ["--budget-steps", 36, "--threads", 1]
    job = start_longmatch(*common, "-o", tmp_path / "killed", checkpoint=tiny_checkpoint)
    cells = tmp_path / "killed" / "work" / "cells"
    while not list(cells.glob("run-smith-*.json")):
        assert job.poll() is None
        time.sleep(0.005)
    job.kill()
    job.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    again = longmatch(*common, "-o", tmp_path / "killed")
    assert again.status == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    folders = (whole.folder, tmp_path / "killed")
    results = [json.loads((one / "result.json").read_text()) for one in folders]
    assert without_times(results[0]) == without_times(results[1])
    check_result(results[0])
    check_table(whole.printed)
    for name in ("by-tokens-read.svg", "by-milliseconds.svg"):
        assert (whole.folder / name).read_text().startswith("<?xml")


def check_result(result: dict[str, Any]) -> None:
    assert list(result["models"]) == ["smith", "han", "ernie-doc"]
    smith, han, ernie = result["models"].values()
    # Two rates and two seeds are three runs, one rate and two seeds are two.
    assert [one["steps"] for one in (smith, han, ernie)] == [12, 12, 18]
    assert [one["rate"] for one in smith["tried"]] == [1e-3, 1e-2]
    assert [one["seed"] for one in smith["seeds"]] == [0, 1]
    assert smith["rate"] == max(smith["tried"], key=lambda one: (one["best"], -one["rate"]))["rate"]
    assert smith["rate_is_at_an_end"]
    assert not ernie["rate_is_at_an_end"]
    assert not smith["from_tokens"]
    assert han["from_tokens"]
    # 8 tokens are less than a block, and 4,096 more than the 8 blocks that are read.
    assert len(han["by_tokens_read"]) == 3
    assert han["by_tokens_read"][-1]["tokens"] == han["tokens_read"]
    whole = [one["by_tokens_read"][-1]["accuracy"] for one in (smith, han)]
    pairs = result["pairs"]["systems"]
    assert whole == [pairs[name]["by_seed"][0]["accuracy"] for name in ("SMITH", "HAN")]
    assert result["reference"] == "SMITH"
    assert "against" not in pairs["SMITH"]
    assert 0 <= pairs["HAN"]["against"]["accuracy"]["p"] <= 1
    assert len(result["retrieval"]["systems"]["HAN"]["by_seed"]) == 2
    assert result["retrieval"]["queries"] == 6
    words = [
        one.keys() - {"SMITH", "HAN", "ERNIE-Doc"}
        for one in (pairs, result["retrieval"]["systems"])
    ]
    assert words == [{"BM25", "TF-IDF", "LSA"}] * 2
    assert result["speed"]["smith"]["ratio"] == 1
    assert all(one["milliseconds"] > 0 for one in result["speed"].values())


def check_table(printed: str) -> None:
    assert "36 steps of training steps for each model" in printed
    assert "| SMITH     |" in printed
    assert re.search(r"\| BM25 +\|( +\|){6} \d\.", printed)
    assert "Wiki65K" in printed
    assert "longmatch lab create-checkpoint" in printed


@pytest.mark.slow
def test_the_commands_of_a_row_make_its_model_again(
    longmatch: Run, whole: Comparison, tmp_path: Path
) -> None:
    row = json.loads((whole.folder / "result.json").read_text())["models"]["han"]
    output = tmp_path / "out"
    shutil.copytree(whole.folder / "recipes", output / "recipes")
    (output / "work" / "starts").mkdir(parents=True)
    moved = [line.replace(str(whole.folder), str(output)) for line in row["commands"][0]]
    create, train = (shlex.split(line)[1:] for line in moved)
    for one in (create, train):
        made = longmatch(*one, "--precision", "fp32")
        assert made.status == 0, made.err
    checkpoint = Path(train[-1])
    report = json.loads((checkpoint / "training" / "report.json").read_text())
    measured = row["seeds"][0]
    assert load_checkpoint(checkpoint).architecture == "han"
    assert report["best"] == pytest.approx(measured["best"], abs=1e-6)
    assert (report["best_step"], report["steps"]) == (measured["best_step"], measured["steps"])


@pytest.mark.slow
def test_models_are_added_to_a_finished_comparison(
    compare: Callable[..., Comparison], small: Comparison, tmp_path: Path
) -> None:
    output = Path(shutil.copytree(small.folder, tmp_path / "out"))
    cell = next((output / "work" / "cells").glob("run-smith-*.json"))
    made = cell.stat().st_mtime_ns
    plan = small.folder.parent / "plan.toml"
    compare(output, "--plan", plan, "--budget-steps", 3, "--models", "smith, han")
    result = json.loads((output / "result.json").read_text())
    assert list(result["models"]) == ["smith", "han"]
    assert cell.stat().st_mtime_ns == made


@pytest.mark.parametrize(
    ("change", "arguments", "error"),
    [
        (str, ["--models", "smith,bart"], "--models: 'bart' is none of smith, han, ernie-doc"),
        (str, ["--budget-steps", 2], "--budget-steps: is too small: smith has 3 runs"),
        (str, ["--budget-seconds", 0], "--budget-seconds: is too small: smith has 3 runs"),
        (
            str,
            ["--budget-steps", 9, "--budget-seconds", 9],
            "--budget-steps: cannot be combined with --budget-seconds",
        ),
        (str, ["--bert", "missing"], "--bert: missing/config.json: there is no such file"),
        (str, ["--plan", "missing.toml"], "--plan: recipe missing.toml: "),
        (lambda plan: plan.replace("han.toml", "ham.toml"), [], "model.2.recipe: there is no"),
        (lambda plan: plan.replace('kind = "links"', 'kind = "lines"'), [], "kind must be one of"),
        (lambda plan: plan.replace("blocks = 8 }", "blocks = 4 }"), [], "reads all blocks"),
        (lambda plan: plan.replace("documents = 8", "steps = 8"), [], "training.steps is set by"),
        (lambda plan: plan.replace("[1e-3, 1e-2]", "[1e-2, 1e-3]"), [], "rates: must ascend"),
        (lambda plan: plan.replace("max_blocks = 8", "max_blocks = 32"), [], "max_blocks"),
        (lambda plan: plan.replace("= { begin_as_mean", "= { begin_as_men"), [], "begin_as_men"),
        (lambda plan: plan.replace('key = "han"', 'key = "smith"'), [], "two keys are equal"),
        (
            lambda plan: plan.replace('"links"', '"supcon", groups = "classes"'),
            [],
            "CORPUS: the recipe learns from classes, and no document for training",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_work(
    longmatch: Run,
    tiny_bert: Path,
    corpus: Path,
    tmp_path: Path,
    change: Callable[[str], str],
    arguments: list[object],
    error: str,
) -> None:
    changed = write_plan(tmp_path, change)
    output = tmp_path / "out"
    assert error in refusal_of(longmatch, corpus, tiny_bert, changed, output, arguments)


@pytest.mark.parametrize(
    ("missing", "error"),
    [
        ("qrels.tsv", "has no links"),
        ("splits.tsv", "has no splits"),
        ("pairs.test.jsonl.gz", "has no pairs.test.jsonl"),
        ("pairs.valid.jsonl.gz", "has no pairs.valid.jsonl"),
        ("corpus.jsonl.gz", "CORPUS: "),
    ],
)
def test_a_corpus_without_what_is_measured_is_refused(
    longmatch: Run,
    tiny_bert: Path,
    corpus: Path,
    plan: Path,
    tmp_path: Path,
    missing: str,
    error: str,
) -> None:
    folder = Path(shutil.copytree(corpus, tmp_path / "topics"))
    (folder / missing).unlink()
    command = ["bench", "models", folder, "--bert", tiny_bert, "--plan", plan]
    answer = longmatch(*command, "-o", tmp_path / "out")
    assert answer.status == 2
    assert "CORPUS: " in answer.err
    assert error in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_comparison_is_finished_and_the_folder_of_another_one_refused(
    longmatch: Run,
    tiny_bert: Path,
    corpus: Path,
    small: Comparison,
    tmp_path: Path,
) -> None:
    result = json.loads((small.folder / "result.json").read_text())
    assert (result["models"]["smith"]["steps"], len(result["models"]["smith"]["seeds"])) == (3, 1)
    plan = small.folder.parent / "plan.toml"
    common = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan]
    (tmp_path / "out" / "mine").mkdir(parents=True)
    answer = longmatch(*common, "-o", tmp_path / "out")
    assert answer.status == 2
    assert "--output: " in answer.err
    assert "exists already, and is no comparison" in answer.err
    before = (small.folder / "result.json").read_bytes()
    answer = longmatch(*common, "-o", small.folder, "--models", "smith", "--budget-steps", 6)
    assert answer.status == 2
    assert "is of another comparison: budget_steps differs" in answer.err
    assert (small.folder / "result.json").read_bytes() == before


@pytest.mark.slow
def test_a_folder_in_use_is_refused(
    longmatch: Run, tiny_bert: Path, corpus: Path, plan: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan, "-o", output]
    command += ["--models", "smith"]
    assert longmatch(*command, "--budget-seconds", 1e-6).status == 2  # makes the folder
    with FileLock(output / "work" / "writer.lock"):
        answer = longmatch(*command, "--budget-seconds", 1e-6)
    assert answer.status == 2
    assert "another process is comparing into it" in answer.err


@pytest.mark.slow
def test_a_budget_below_the_pace_is_refused(
    longmatch: Run, tiny_bert: Path, corpus: Path, plan: Path, tmp_path: Path
) -> None:
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan, "--models", "smith"]
    answer = longmatch(*command, "-o", tmp_path / "out", "--budget-seconds", 1e-6)
    assert answer.status == 2
    assert "smith: the budget is too small: 3 runs of a step of" in answer.err
    assert not list((tmp_path / "out" / "work" / "cells").glob("run-*"))

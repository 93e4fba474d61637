"""`longmatch bench models` on the data of the papers: pairs alone, whose parts share documents."""

import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.command import Run
from tests.tools.corpora import write_two_topics
from tests.tools.refused_comparison import refusal_of
from training.comparison.job import to_toml
from training.comparison.plan import DEFAULT_PLAN

PLAN = """
name = "tiny"
budget_seconds = 60
seeds = [0]
lengths = [64]
timed_documents = 4
[training]
documents = 8
max_blocks = 8
sentence_level = { trained = "all", blocks = 8 }
objective = [{ kind = "pairs" }]
[[model]]
key = "dssm"
name = "DSSM"
recipe = "dssm"
create = { block_length = 16, dimension = 16 }
rates = [1e-3]
"""
# What makes the models of shipped plans small, by architecture.
SMALL: dict[str, dict[str, Any]] = {
    "smith": {"sentence_layers": 1, "document_layers": 1},
    "colde": {"sentence_layers": 1, "lstm_size": 8},
    "han": {},
    "dssm": {},
    "arc-i": {},
}
OF_SCRATCH = {"hidden_size": 32, "intermediate_size": 64, "attention_heads": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as of `longmatch lab dataset aan`: no links, no splits, shared documents."""
    folder = tmp_path_factory.mktemp("data") / "aan"
    write_two_topics(folder, ["train"] * 6, ())
    for name in ("qrels.tsv", "splits.tsv"):
        (folder / name).unlink()
    names = [f"{topic}{number}" for topic in ("river", "music") for number in range(6)]
    pairs = [(a, b) for number, a in enumerate(names) for b in names[:number]]
    parts = (("train", pairs[::2]), ("valid", pairs[1::4]), ("test", pairs[3::4]))
    for part, some in parts:
        lines = [{"source": a, "target": b, "label": int(a[:-1] == b[:-1])} for a, b in some]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"pairs.{part}.jsonl").write_text(text)
    return folder


def write_plan(folder: Path, change: Callable[[str], str] = str) -> Path:
    path = folder / "plan.toml"
    path.write_text(change(PLAN))
    return path


def test_pairs_alone_are_compared_without_retrieval(
    longmatch: Run, tiny_bert: Path, corpus: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", write_plan(tmp_path)]
    command += ["-o", output, "--budget-steps", 2, "--threads", 1, "--allow-shared-documents"]
    answer = longmatch(*command)
    assert answer.status == 0, answer.err
    result = json.loads((output / "result.json").read_text())
    assert "retrieval" not in result
    assert list(result["pairs"]["systems"]) == ["DSSM", "BM25", "TF-IDF", "LSA"]
    row = result["models"]["dssm"]
    assert row["seeds"][0]["figure"] == "AUC of the validation pairs"
    assert result["corpus"]["texts_seen"] == 12  # no document is held out
    assert row["steps"] == 2
    create, train = row["commands"][0]
    assert "--allow-shared-documents" in shlex.split(train)
    assert "--allow-shared-documents" not in shlex.split(create)
    assert "nDCG" not in answer.out
    assert "16 test pairs with thresholds from validation pairs. Means" in answer.out
    assert "accuracy, test pairs" in (output / "by-milliseconds.svg").read_text()


@pytest.mark.parametrize(
    ("change", "arguments", "error"),
    [
        (str, [], "CORPUS: a leak: documents are in the pairs of two parts"),
        (
            lambda plan: plan.replace('"pairs"', '"links"'),
            ["--allow-shared-documents"],
            "has no links (qrels.tsv beside corpus.jsonl), which the plan learns from",
        ),
        (
            lambda plan: plan.replace('"pairs"', '"supcon"'),
            ["--allow-shared-documents"],
            "has no links (qrels.tsv beside corpus.jsonl), which the plan learns from",
        ),
    ],
    ids=["shared", "links", "groups of links"],
)
def test_pairs_that_do_not_do_are_refused_before_the_work(
    longmatch: Run,
    tiny_bert: Path,
    corpus: Path,
    tmp_path: Path,
    change: Callable[[str], str],
    arguments: list[object],
    error: str,
) -> None:
    plan = write_plan(tmp_path, change)
    output = tmp_path / "out"
    assert error in refusal_of(longmatch, corpus, tiny_bert, plan, output, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smith", "smith-lengths", "colde"])
def test_the_plans_of_the_papers_run(
    longmatch: Run, tiny_bert: Path, corpus: Path, tmp_path: Path, name: str
) -> None:
    """Every model of a plan that ships, made small, for two steps of each training."""
    plan = tmp_path / "plan.toml"
    plan.write_text(to_toml(small_plan(DEFAULT_PLAN.with_name(f"{name}.toml"))))
    output = tmp_path / "out"
    command = ["bench", "models", corpus, "--bert", tiny_bert, "--plan", plan, "-o", output]
    command += ["--budget-steps", 2, "--threads", 1, "--allow-shared-documents"]
    answer = longmatch(*command)
    assert answer.status == 0, answer.err
    models = json.loads((output / "result.json").read_text())["models"]
    planned = tomllib.loads(plan.read_text())["model"]
    assert list(models) == [one["key"] for one in planned]
    pretrained = {one["key"] for one in planned if "pretraining" in one}
    assert {key for key, one in models.items() if one["pretraining"]} == pretrained
    assert all(one["steps"] == 2 for one in models.values())
    for key in pretrained:  # the pairs hold out no document, so a tenth of the texts is
        _, pretrain, _ = models[key]["commands"][0]
        assert f"--corpus {corpus / 'corpus.jsonl.gz'} --allow-shared-documents" in pretrain
        assert models[key]["pretraining"]["documents"] == 11


def small_plan(path: Path) -> dict[str, Any]:
    """Return a plan with one seed, one rate and small sizes for each of its models."""
    plan = tomllib.loads(path.read_text())
    plan |= {"seeds": [0], "validations": 1, "lengths": [16], "timed_documents": 1}
    del plan["pretraining_seconds"]
    plan["pretraining_steps"] = 2
    for table in (plan["training"], plan["pretraining"]):
        shrink(table)
    for model in plan["model"]:
        model["rates"] = model["rates"][:1]
        for table in (model.get("training", {}), model.get("pretraining", {})):
            shrink(table)
        recipe = tomllib.loads(
            (DEFAULT_PLAN.parents[3] / f"encoder/recipes/{model['recipe']}.toml").read_text()
        )
        sizes = SMALL[recipe["architecture"]]
        if recipe["architecture"] == "smith" and not recipe["initialise_from_bert"]:
            sizes = sizes | OF_SCRATCH
        create = model.setdefault("create", {})
        create |= {"block_length": 16, "dimension": 16, "max_blocks": 4}
        create["model"] = create.get("model", {}) | sizes
    return plan


def shrink(table: dict[str, Any]) -> None:
    """Make the batches of a training recipe small."""
    if "documents" in table:
        table["documents"] = 4
    if "max_blocks" in table:
        table["max_blocks"] = min(table["max_blocks"], 4)
    if "blocks" in (level := table.get("sentence_level", {})):
        level["blocks"] = min(level["blocks"], 4)

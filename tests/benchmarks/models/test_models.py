"""`python -m benchmarks.models` as a user types it, on a tiny corpus and tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import typer
from typer.testing import CliRunner, Result

from benchmarks.models import __main__ as command
from benchmarks.models.plan import PLANS, read_plan
from tests.kit.corpora import write_pairs, write_two_topics


def run(*arguments: object) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# The sizes of shipped plans are made no larger.
LARGEST = {
    "documents": 4, "max_blocks": 4, "blocks": 4, "block_length": 16, "dimension": 32,
    "sentence_layers": 1, "lstm_size": 8, "memory_length": 8, "hidden_size": 32,
    "intermediate_size": 64, "attention_heads": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as of `longmatch dataset aan`: no links, no splits, shared documents."""
    folder = tmp_path_factory.mktemp("data") / "aan"
    write_two_topics(folder, ["train"] * 6, ())
    for name in ("qrels.tsv", "splits.tsv"):
        (folder / name).unlink()
    names = [f"{topic}{number}" for topic in ("river", "music") for number in range(6)]
    every = [(a, b) for number, a in enumerate(names) for b in names[:number]]
    for part, chosen in (("train", every[::2]), ("valid", every[1::4]), ("test", every[3::4])):
        labelled = ((a, b, int(a[:-1] == b[:-1])) for a, b in chosen)
        write_pairs(folder / f"pairs.{part}.jsonl", labelled)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in PLANS.glob("*.toml")))
def test_every_model_of_a_plan_is_trained(
    tiny_bert: Path, pairs: Path, tmp_path: Path, name: str
) -> None:
    """Made small, for two steps of each training, from labelled pairs alone."""
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(tomli_w.dumps(small_plan(PLANS / f"{name}.toml")))
    options = ["--bert", tiny_bert, "-o", output, "--threads", 1]
    refused = run(plan, pairs, *options)
    assert refused.exit_code == 2, refused.output
    assert "a leak: documents are in the pairs of two" in " ".join(refused.stderr.split())
    answer = run(plan, pairs, *options, "--allow-shared-documents")
    assert answer.exit_code == 0, answer.output
    result = json.loads((output / "result.json").read_text())
    assert "retrieval" not in result
    for model, (key, row) in zip(read_plan(plan).models, result["models"].items(), strict=True):
        assert key == model.key
        assert row["steps"] == (2 if model.rates else 0)
        if model.rates:
            assert row["seeds"][0]["figure"] == "AUC of the validation pairs"
        # The pairs hold out no document, so a tenth of the 12 texts is.
        documents = [run["documents"] for run in row["pretraining"]]
        assert documents == ([] if model.pretraining is None else [11])


def small_plan(path: Path) -> dict[str, Any]:
    """Return a plan with a seed, a rate and small sizes for each of its models."""
    plan = smaller(read_plan(path).model_dump(mode="json", by_alias=True))
    for model in plan["model"]:
        model["rates"] = model["rates"][:1]
        model.pop("base", None)  # is merged already
    plan |= {"seeds": [0], "validations": 1, "lengths": [16]}
    return plan | {key: {"steps": 2} for key in ("budget", "pretraining_budget")}


def smaller(value: Any) -> Any:
    """Return a part of a plan made small, that learns from pairs instead of links."""
    if isinstance(value, list):
        return [smaller(element) for element in value]
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "links":
        return {"kind": "pairs"}
    if value.get("kind") == "supcon":
        value = value | {"groups": "pairs"}
    given = {name: element for name, element in value.items() if element is not None}
    return {k: min(v, LARGEST[k]) if k in LARGEST else smaller(v) for k, v in given.items()}

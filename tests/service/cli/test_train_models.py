"""Models of papers from the command line: trained from tokens, exported and evaluated."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder.checkpoint import load_checkpoint
from tests.tools.command import Run
from tests.tools.corpora import write_linked_corpus
from training.recipe import RECIPES, read_training_recipe

RECIPE = """
name = "tiny"
steps = 2
documents = 6
max_blocks = 8
validation_interval = 1
checkpoint_interval = 1
[sentence_level]
trained = "all"
blocks = 8
[[objective]]
kind = "links"
"""

SHORTER = {
    "steps": 2,
    "documents": 4,
    "chunk": 4,
    "max_blocks": 8,
    "blocks": 8,
    "warm_up": 0,
    "validation_interval": 1,
    "checkpoint_interval": 1,
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_linked_corpus(tmp_path / "corpus")


def test_a_baseline_is_trained_exported_and_evaluated(
    longmatch: Run, corpus: Path, tiny_baseline: Callable[[str], Path], tmp_path: Path
) -> None:
    recipe, output, start = tmp_path / "tiny.toml", tmp_path / "out", tiny_baseline("smash")
    recipe.write_text(RECIPE)
    train = ("train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    finished = longmatch(*train, "--checkpoint", start)
    assert finished.status == 0, finished.stderr
    assert load_checkpoint(output).architecture == load_checkpoint(start).architecture
    assert json.loads((output / "training" / "report.json").read_text())["steps"] == 2
    judged = (corpus / "corpus.jsonl", corpus / "qrels.tsv")
    scores = longmatch("evaluate", *judged, "--checkpoint", output)
    assert scores.status == 0, scores.stderr


def test_smith_is_pretrained_and_tuned_with_the_recipes_of_the_paper(
    longmatch: Run, corpus: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """The recipes that ship, shorter: two steps of four documents of 8 blocks."""
    pairs = [
        {"source": f"d{number}", "target": f"d{number + 1}", "label": (number // 2) % 2}
        for number in range(0, 24, 2)
    ]
    (corpus / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    start = tiny_checkpoint
    for name in ("smith-paper-pretrain", "smith-paper-pairs"):
        text = (RECIPES / f"{name}.toml").read_text()
        for field, value in SHORTER.items():
            text, changed = re.subn(rf"^{field} = .*$", f"{field} = {value}", text, flags=re.M)
            assert changed == 1 or field == "warm_up"
        recipe, output = tmp_path / f"{name}.toml", tmp_path / name
        recipe.write_text(text)
        train = ("train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
        finished = longmatch(*train, "--checkpoint", start)
        assert finished.status == 0, finished.stderr
        assert json.loads((output / "training" / "report.json").read_text())["steps"] == 2
        start = output


def test_the_recipes_of_the_paper_have_its_settings() -> None:
    for name, kind in (("smith-paper-pretrain", "wp+sp"), ("smith-paper-pairs", "pairs")):
        recipe = read_training_recipe(RECIPES / f"{name}.toml")
        optimiser = recipe.optimiser
        assert [one.kind for one in recipe.objectives] == [kind]
        assert (recipe.documents, recipe.max_blocks, recipe.dropout) == (32, 48, 0.1)
        assert optimiser.document_rate == optimiser.sentence_rate == 5e-5
        assert (optimiser.betas, optimiser.epsilon) == ((0.9, 0.999), 1e-6)

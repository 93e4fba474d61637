"""CoLDE from the command line: trained on sections, exported, and served like any checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from index.embed import read_embedded_corpus
from tests.tools.command import Run
from tests.tools.corpora import TOPIC_WORDS

RECIPE = """
name = "tiny"
steps = 2
documents = 12
chunk = 5
max_blocks = 8
validation_interval = 1
checkpoint_interval = 1
[optimiser]
document_rate = 1e-3
[[objective]]
kind = "{kind}"
parts = 3
"""
FROM_TOKENS = """
[sentence_level]
trained = "all"
blocks = 2
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents with headings and without."""
    random = np.random.default_rng(4)
    path = tmp_path / "corpus.jsonl"
    with path.open("w") as file:
        for number in range(24):
            topics = random.choice(TOPIC_WORDS, size=3)
            parts = [" ".join(f"The {word} is there." for word in topics) for _ in range(3)]
            headed = "\n\n".join(f"# Part {n}\n\n{part}" for n, part in enumerate(parts))
            text = headed if number % 2 else " ".join(parts)
            file.write(json.dumps({"id": f"d{number}", "text": f"{text} Own{number}."}) + "\n")
    return path


@pytest.mark.parametrize(
    ("kind", "more"),
    [("supcon", ""), pytest.param("sections", FROM_TOKENS, marks=pytest.mark.slow)],
)
def test_colde_is_trained_and_served(
    kind: str, more: str, longmatch: Run, corpus: Path, tiny_colde: Path, tmp_path: Path
) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE.format(kind=kind) + more)
    output = tmp_path / "trained"
    train = ("train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    assert longmatch(*train, "--checkpoint", tiny_colde).status == 0
    trained = load_checkpoint(output)
    assert trained.architecture == "colde"
    assert trained.model == load_checkpoint(tiny_colde).model
    assert trained.fingerprint != load_checkpoint(tiny_colde).fingerprint
    embedded = tmp_path / "v.npz"
    assert longmatch("embed", corpus, "-o", embedded, "--checkpoint", output).status == 0
    vectors = read_embedded_corpus(embedded).vectors
    assert vectors.shape == (24, 32)
    data = tmp_path / "data"
    assert longmatch("index", corpus, "--checkpoint", output, "--data", data).status == 0


def test_sections_train_smith_too(
    longmatch: Run, corpus: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE.format(kind="sections"))
    output = tmp_path / "trained"
    train = ("train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    assert longmatch(*train, "--checkpoint", tiny_checkpoint).status == 0
    assert load_checkpoint(output).fingerprint != load_checkpoint(tiny_checkpoint).fingerprint
    curve = (output / "training" / "curve.jsonl").read_text().splitlines()
    assert any('"loss.sections"' in line for line in curve)

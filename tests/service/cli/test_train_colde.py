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
BY_CLASS = """
groups = "classes"
documents_per_class = 2
"""
FROM_TOKENS = """
[sentence_level]
trained = "all"
blocks = 2
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents of three classes, with headings and without."""
    random = np.random.default_rng(4)
    path = tmp_path / "corpus.jsonl"
    with path.open("w") as file:
        for number in range(24):
            topics = random.choice(TOPIC_WORDS, size=3)
            parts = [" ".join(f"The {word} is there." for word in topics) for _ in range(3)]
            headed = "\n\n".join(f"# Part {n}\n\n{part}" for n, part in enumerate(parts))
            text = headed if number % 2 else " ".join(parts)
            record = {"id": f"d{number}", "text": f"{text} Own{number}.", "class": number % 3}
            file.write(json.dumps(record) + "\n")
    return path


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        pytest.param("supcon", BY_CLASS, marks=pytest.mark.slow),
        pytest.param("supcon", "", marks=pytest.mark.slow),
        pytest.param("sections", FROM_TOKENS, marks=pytest.mark.slow),
    ],
    ids=["classes", "links", "tokens"],
)
def test_colde_is_trained_and_served(
    kind: str, more: str, longmatch: Run, corpus: Path, tiny_colde: Path, tmp_path: Path
) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE.format(kind=kind) + more)
    output = tmp_path / "trained"
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
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


@pytest.mark.slow
def test_sections_train_smith_too(
    longmatch: Run, corpus: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE.format(kind="sections"))
    output = tmp_path / "trained"
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    assert longmatch(*train, "--checkpoint", tiny_checkpoint).status == 0
    assert load_checkpoint(output).fingerprint != load_checkpoint(tiny_checkpoint).fingerprint
    curve = (output / "training" / "curve.jsonl").read_text().splitlines()
    assert any('"loss.sections"' in line for line in curve)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, "no document for training has the metadata field 'class'"),
        ({"d0": "a", "d1": "a", "d2": "b"}, "no corpus has two of at least two documents"),
        ({"d0": ["a"]}, "class of 'd0' must be a text or an integer, not list"),
    ],
    ids=["none", "alone", "list"],
)
def test_classes_that_teach_nothing_are_refused_before_any_work(
    classes: dict[str, object] | None,
    message: str,
    longmatch: Run,
    corpus: Path,
    tiny_colde: Path,
    tmp_path: Path,
) -> None:
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    for record in records:
        record["class"] = (classes or {}).get(record["id"])
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE.format(kind="supcon") + BY_CLASS)
    output = tmp_path / "trained"
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", output)
    refused = longmatch(*train, "--checkpoint", tiny_colde)
    assert refused.status == 2
    assert "--corpus: " in refused.err
    assert message in refused.err
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.jsonl", "recipe.toml"}

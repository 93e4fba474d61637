"""A baseline from the command line: trained from tokens, exported and evaluated."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from tests.tools.command import Run
from tests.tools.corpora import TOPIC_WORDS

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


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents of one to a few blocks, in a folder, linked by twos."""
    random = np.random.default_rng(4)
    folder = tmp_path / "corpus"
    folder.mkdir()
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(24):
            topics = random.choice(TOPIC_WORDS, size=1 + number % 9)
            text = " ".join(f"The {word} is there." for word in topics)
            file.write(json.dumps({"id": f"d{number}", "text": f"{text} Own{number}."}) + "\n")
    pairs = [f"d{number}\td{number + 1}\t1" for number in range(0, 24, 2)]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(pairs) + "\n")
    return folder


@pytest.mark.parametrize("name", ["smash", "arc-i"])
def test_it_is_trained_exported_and_evaluated(
    longmatch: Run, corpus: Path, tiny_baseline: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    recipe, output, start = tmp_path / "tiny.toml", tmp_path / "out", tiny_baseline(name)
    recipe.write_text(RECIPE)
    train = ("train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    finished = longmatch(*train, "--checkpoint", start)
    assert finished.status == 0, finished.stderr
    assert load_checkpoint(output).architecture == load_checkpoint(start).architecture
    assert json.loads((output / "training" / "report.json").read_text())["steps"] == 2
    judged = (corpus / "corpus.jsonl", corpus / "qrels.tsv")
    scores = longmatch("evaluate", *judged, "--checkpoint", output)
    assert scores.status == 0, scores.stderr

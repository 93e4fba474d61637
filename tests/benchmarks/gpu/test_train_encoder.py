"""The training of the encoder in parts, with the real commands on tiny data."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu.train_encoder import Plan, Stage, run, stages

RECIPE = """
name = "tiny-{level}"
steps = 4
documents = 12
max_blocks = 8
checkpoint_interval = 1
validation_interval = 2
[[objective]]
kind = "links"
hard_negatives = 1
"""
ARCHITECTURE = """
name = "tiny"
architecture = "smith"
block_length = 16
max_blocks = 64
long_sentence = "split"
language = "en"
dimension = 32
initialise_from_bert = true
begin_as_mean = true
[model]
sentence_layers = 2
document_layers = 0
pooling = "mean"
combine = "attention"
attention_size = 8
"""
ALIGNED = 'similarity = "alignment"\n[sentence_level]\ntrained = "all"\nblocks = 3\n'


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        for number in range(60):
            text = f"The river of own{number // 2} is here. Stone and music {number}. " * 9
            file.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")
    parts = ["train", "train", "valid", "test"]
    splits = "".join(f"d{n}\t{parts[n // 2 % 4]}\n" for n in range(60))
    (folder / "splits.tsv").write_text(splits)
    links = "".join(f"d{n}\t0\td{n ^ 1}\t1\n" for n in range(60))
    (folder / "qrels.tsv").write_text(links)
    return folder


@pytest.mark.slow
def test_it_goes_on_until_the_tables_are_printed(
    corpus: Path, tmp_path: Path, tiny_bert: Path
) -> None:
    (tmp_path / "sentences.toml").write_text(RECIPE.format(level="sentences") + ALIGNED)
    (tmp_path / "documents.toml").write_text(RECIPE.format(level="documents"))
    (tmp_path / "architecture.toml").write_text(ARCHITECTURE)
    command = [
        *(sys.executable, "-m", "benchmarks.gpu.train_encoder", "--bert", tiny_bert),
        *("--corpus", corpus, "--test", corpus, "--work", tmp_path / "work"),
        *("--architecture", tmp_path / "architecture.toml"),
        *("--recipe", tmp_path / "sentences.toml", "--precision", "fp32"),
        *("--document-recipe", tmp_path / "documents.toml"),
    ]
    first = subprocess.run([*map(str, command), "--minutes", "0.05"], capture_output=True)
    assert first.returncode == 75, first.stderr
    again = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("tfidf") >= 3  # tables of the start and of both trained checkpoints
    assert "train the document level: running" in again.stdout
    once_more = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert "running" not in once_more.stdout


@pytest.mark.slow
def test_a_stage_whose_time_is_up_is_not_done(tmp_path: Path) -> None:
    waits = Stage("embed", ("embed", tmp_path / "none", "-o", tmp_path / "v.npz"), tmp_path / "v")
    assert not run(waits, time.monotonic())
    assert not (tmp_path / "v").exists()


def test_a_stage_that_fails_is_reported(tmp_path: Path) -> None:
    fails = Stage("embed", ("embed", tmp_path / "none", "-o", tmp_path / "v.npz"), tmp_path / "v")
    with pytest.raises(subprocess.CalledProcessError):
        run(fails, time.monotonic() + 100)


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    assert run(Stage("none", ("no such command",), tmp_path), time.monotonic())


def test_every_checkpoint_is_evaluated_on_every_corpus(tmp_path: Path) -> None:
    tests = (tmp_path / "a", tmp_path / "b")
    found = list(stages(Plan(tmp_path, tmp_path, tmp_path, ("a", "b"), tests[:1], tests, "int8")))
    printed = [stage.result.name for stage in found if stage.printed]
    expected = [f"{c}-{k}.txt" for c in "ab" for k in ("start", "aligned", "trained")]
    assert printed == expected

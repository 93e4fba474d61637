"""What `longmatch lab train` exports: a term channel that serves, and graphs that pass the gate."""

import json
from pathlib import Path

import numpy as np
import pytest

import encoder.export.quality
from encoder.checkpoint import QUALITY, load_checkpoint
from evaluation.quality_gate import sample_stdlib
from index.embed import read_embedded_corpus
from tests.tools.command import Run
from tests.tools.corpora import write_topics

RECIPE = """
name = "tiny"
steps = 2
documents = 12
max_blocks = 8
validation_interval = 1
checkpoint_interval = 1
[[objective]]
kind = "halves"
"""
TERMS = """
[terms]
dimension = 4
buckets = 32
span = 4
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_topics(tmp_path / "corpus.jsonl", 30)


@pytest.mark.slow
def test_a_term_channel_is_served_and_trained_further(
    longmatch: Run, corpus: Path, tmp_path: Path
) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE + TERMS)
    first, further = tmp_path / "first", tmp_path / "further"
    run = ("lab", "train", recipe, "--corpus", corpus, "--precision", "fp32")
    assert longmatch(*run, "-o", first).status == 0
    assert longmatch(*run, "-o", further, "--checkpoint", first).status == 0
    assert load_checkpoint(further).model == load_checkpoint(first).model
    assert load_checkpoint(further).fingerprint != load_checkpoint(first).fingerprint
    vectors = tmp_path / "v.npz"
    embed = ("embed", corpus, "-o", vectors, "--precision", "fp32")
    assert longmatch(*embed, "--checkpoint", further).status == 0
    anew = read_embedded_corpus(vectors)
    assert anew.vectors.shape == (30, 36)
    # Encoded once by the start, and read by every document level over the same sentence level.
    assert longmatch(*embed, "--blocks", tmp_path / "kept").status == 0
    assert read_embedded_corpus(vectors).vectors.shape == (30, 32)
    assert longmatch(*embed, "--blocks", tmp_path / "kept", "--checkpoint", further).status == 0
    kept = read_embedded_corpus(vectors)
    assert kept.ids == anew.ids
    assert np.allclose(kept.vectors, anew.vectors, atol=2e-3)  # kept in half precision
    assert np.array_equal(kept.tokens_read, anew.tokens_read)


@pytest.mark.slow
def test_graphs_that_lose_too_much_are_refused_and_the_training_is_kept(
    longmatch: Run,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE)
    run = ("lab", "train", recipe, "--corpus", corpus, "-o", tmp_path / "t")
    monkeypatch.setattr("service.cli.lab.sample_stdlib", lambda: sample_stdlib(14))
    with monkeypatch.context() as patched:
        patched.setattr(encoder.export.quality, "MINIMUM_NEIGHBOURS", 1.01)
        refused = longmatch(*run, "--precision", "fp16")
    assert refused.status == 2
    said = refused.err
    assert "of the 10 nearest neighbours of fp32 are kept, under 101%" in said
    assert "the same command with --precision fp32 writes a checkpoint" in said
    assert not (tmp_path / "t").exists()
    again = longmatch(*run, "--precision", "fp16")
    assert again.status == 0
    said = again.err
    assert "resuming after 2 of 2 steps" in said
    assert "fp16: keeps" in said
    quality = json.loads((tmp_path / "t" / QUALITY).read_text())
    assert quality["fp16"]["documents"] == 14
    assert quality["fp16"]["neighbours"] >= 0.98

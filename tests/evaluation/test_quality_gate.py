import json
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32
from encoder.checkpoint import load_checkpoint
from evaluation.quality_gate import measure_quality, neighbours_kept
from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import documents

WORDS = ["river", "stone", "music", "winter", "tree", "paper", "engine", "harbour", "snow"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty documents of random words."""
    rng = np.random.default_rng(0)
    lines = [{"id": f"d{n}", "text": " ".join(rng.choice(WORDS, 40)) + f" {n}."} for n in range(40)]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_too_few_documents_are_refused(tiny_checkpoint: Path, corpus: Path) -> None:
    checkpoint, few = load_checkpoint(tiny_checkpoint), documents(corpus)[:11]
    with pytest.raises(CorpusError, match="11 documents are too few to compare 10 neighbours"):
        measure_quality(checkpoint, ["int8"], few, SilentProgress())


def unit(vectors: Float32) -> Float32:
    result: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return result


def test_neighbours_kept_counts_each_that_is_lost() -> None:
    angles = np.array([0.0, 0.1, 0.25, 0.45])
    exact = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert neighbours_kept(exact, exact, k=1) == 1.0
    angles[1] = 0.2  # nearer to 0.25 than to 0 now; that one document loses its neighbour
    found = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert neighbours_kept(exact, found, k=1) == 0.75


def test_equal_documents_may_stand_for_each_other() -> None:
    exact = unit(np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)).repeat(5, 0)
    noise = np.random.default_rng(1).normal(size=exact.shape).astype(np.float32) * 1e-4
    assert neighbours_kept(exact, unit(exact + noise), k=2) == 1.0
    assert neighbours_kept(exact, np.full_like(exact, np.nan), k=2) < 0.98


def test_precisions_are_measured_against_fp32(tiny_checkpoint: Path, corpus: Path) -> None:
    checkpoint, some = load_checkpoint(tiny_checkpoint), documents(corpus)[:16]
    qualities = measure_quality(checkpoint, ["fp32", "int8"], some, SilentProgress())
    same, int8 = qualities["fp32"], qualities["int8"]
    assert same.neighbours == 1.0
    assert same.documents == 16
    assert same.tokens == int8.tokens > 16 * 40
    assert 0.5 < int8.neighbours <= 1.0

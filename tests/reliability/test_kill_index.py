"""`kill -9` of the offline job, also with `--adapt`: the end is that of an uninterrupted run."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import Checkpoint, VectorSpace, load_checkpoint
from index.directory.data_directory import open_data_directory
from tests.kit.forking import Forked
from tests.kit.tiers import Tier


@dataclass(frozen=True)
class Size:
    documents: int
    kills: int


@pytest.fixture
def size(tier: Tier) -> Size:
    return Size(4_000, 10) if tier.sweep else Size(200, 2)


def write_corpus(path: Path, documents: int) -> None:
    rng = random.Random(5)
    words = ["river", "stone", "music", "winter", "letter", "engine", "forest", "harbour"]
    with path.open("w") as file:
        for number in range(documents):
            text = (
                " ".join(rng.choices(rng.sample(words, 3), k=rng.randrange(20, 400)))
                + f" {number}."
            )
            file.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")


def contents(
    data: Path, space: Checkpoint | VectorSpace, documents: int
) -> tuple[list[str], np.ndarray, int]:
    """Ids, their vectors in the same order, and how many vectors the index holds."""
    with closing(
        open_data_directory(
            data, fingerprint=space.fingerprint, dimension=space.dimension, read_only=True
        )
    ) as directory:
        found = directory.store.find([f"d{number}" for number in range(documents)])
        ids = sorted(found)
        rows = [directory.store.vectors([found[name].vector_id])[1] for name in ids]
        return ids, np.concatenate(rows), len(directory.index)


def timed(job: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    started = time.monotonic()
    assert job().returncode == 0
    return time.monotonic() - started


@pytest.mark.slow
def test_killed_at_random_and_resumed(
    longmatch_process: Callable[..., subprocess.CompletedProcess[str]],
    start_longmatch: Callable[..., Forked],
    tiny_checkpoint: Path,
    tmp_path: Path,
    size: Size,
    tier: Tier,
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, size.documents)
    whole = ("index", corpus, "--data", tmp_path / "whole")
    seconds = timed(lambda: longmatch_process(*whole, checkpoint=tiny_checkpoint))
    # Nothing is left to encode.
    idle = timed(lambda: longmatch_process(*whole, checkpoint=tiny_checkpoint))
    moments = random.Random(tier.seed)
    killed = 0
    for _ in range(size.kills):
        job = start_longmatch(
            "index", corpus, "--data", tmp_path / "killed", checkpoint=tiny_checkpoint
        )
        try:
            job.wait(moments.uniform(0.5 * idle, idle + (seconds - idle) / size.kills))
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
            killed += 1
    last = longmatch_process(
        "index", corpus, "--data", tmp_path / "killed", checkpoint=tiny_checkpoint
    )
    assert killed >= size.kills // 2  # a moment may come after the end
    assert last.returncode == 0
    space = load_checkpoint(tiny_checkpoint)
    ids, vectors, count = contents(tmp_path / "killed", space, size.documents)
    expected_ids, expected_vectors, expected_count = contents(
        tmp_path / "whole", space, size.documents
    )
    assert ids == expected_ids
    assert np.array_equal(vectors, expected_vectors)
    assert count == expected_count == size.documents


def test_interrupted_by_hand(
    start_longmatch: Callable[..., Forked], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, 4_000)
    data = tmp_path / "data"
    job = start_longmatch("index", corpus, "--data", data, checkpoint=tiny_checkpoint)
    while not (data / "vectors.faiss").exists():  # the data directory is open: work has begun
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGINT)
    assert job.wait(120) == 130

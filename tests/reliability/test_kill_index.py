"""`kill -9` of the offline job at random moments: the end is that of an uninterrupted run."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from encoder.checkpoint import load_checkpoint
from index.directory.data_directory import open_data_directory

DOCUMENTS = 4_000
KILLS = 10


def write_corpus(path: Path) -> None:
    rng = random.Random(5)
    words = ["river", "stone", "music", "winter", "letter", "engine", "forest", "harbour"]
    with path.open("w") as file:
        for number in range(DOCUMENTS):
            text = " ".join(rng.choices(words, k=rng.randrange(20, 400))) + f" {number}."
            file.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")


def contents(data: Path, checkpoint: Path) -> tuple[list[str], np.ndarray, int]:
    """Ids, their vectors in the same order, and how many vectors the index holds."""
    opened = load_checkpoint(checkpoint)
    with closing(
        open_data_directory(
            data, fingerprint=opened.fingerprint, dimension=opened.dimension, read_only=True
        )
    ) as directory:
        found = directory.store.find([f"d{number}" for number in range(DOCUMENTS)])
        ids = sorted(found)
        rows = [directory.store.vectors([found[name].vector_id])[1] for name in ids]
        return ids, np.concatenate(rows), len(directory.index)


def timed(job: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    started = time.monotonic()
    assert job().returncode == 0
    return time.monotonic() - started


def test_killed_at_random_and_resumed(
    longmatch_process: Callable[..., subprocess.CompletedProcess[str]],
    start_longmatch: Callable[..., subprocess.Popen[bytes]],
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)
    whole = ("index", corpus, "--data", tmp_path / "whole")
    seconds = timed(lambda: longmatch_process(*whole, checkpoint=tiny_checkpoint))
    # Nothing is left to encode.
    idle = timed(lambda: longmatch_process(*whole, checkpoint=tiny_checkpoint))

    moments = random.Random(7)
    killed = 0
    for _ in range(KILLS):
        job = start_longmatch(
            "index", corpus, "--data", tmp_path / "killed", checkpoint=tiny_checkpoint
        )
        try:
            job.wait(moments.uniform(0.5 * idle, idle + (seconds - idle) / KILLS))
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
            killed += 1
    last = longmatch_process(
        "index", corpus, "--data", tmp_path / "killed", checkpoint=tiny_checkpoint
    )

    assert killed >= KILLS // 2  # a moment may come after the end
    assert last.returncode == 0
    ids, vectors, size = contents(tmp_path / "killed", tiny_checkpoint)
    expected_ids, expected_vectors, expected_size = contents(tmp_path / "whole", tiny_checkpoint)
    assert ids == expected_ids
    assert np.array_equal(vectors, expected_vectors)
    assert size == expected_size == DOCUMENTS


def test_interrupted_by_hand(
    start_longmatch: Callable[..., subprocess.Popen[bytes]], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)
    data = tmp_path / "data"
    job = start_longmatch("index", corpus, "--data", data, checkpoint=tiny_checkpoint)
    while not (data / "snapshots").exists():  # the data directory is open: work has begun
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGINT)
    assert job.wait(60) == 130

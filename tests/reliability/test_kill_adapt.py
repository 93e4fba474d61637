"""`kill -9` of `index --adapt` at every step: the end is that of an uninterrupted run."""

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.adapter import Adapter, vector_space
from encoder.checkpoint import load_checkpoint
from index.adapt import ADAPTER_FILE, read_corpus_adapter
from index.directory.data_directory import STORE_FILE, open_data_directory
from tests.kit.tiers import Tier
from tests.kit.waiting import wait_until

DOCUMENTS = 400
Start = Callable[..., subprocess.Popen[bytes]]
Longmatch = Callable[..., subprocess.CompletedProcess[str]]


def write_corpus(path: Path) -> None:
    random = np.random.default_rng(5)
    words = ["river", "stone", "music", "winter", "letter", "engine", "forest", "harbour"]
    with path.open("w") as file:
        for number in range(DOCUMENTS):
            text = " ".join(random.choice(words, random.integers(2, 5)).tolist() * 20)
            file.write(json.dumps({"id": f"d{number}", "text": f"{text} {number}."}) + "\n")


def contents(data: Path, checkpoint: Path) -> tuple[Adapter, np.ndarray]:
    """The adapter and the vectors of all documents, in the order of their ids."""
    opened = load_checkpoint(checkpoint)
    adapter = read_corpus_adapter(data, opened)
    assert adapter is not None
    space = vector_space(opened, adapter)
    with closing(
        open_data_directory(
            data, fingerprint=space.fingerprint, dimension=space.dimension, read_only=True
        )
    ) as directory:
        found = directory.store.find([f"d{number}" for number in range(DOCUMENTS)])
        ids = [found[f"d{number}"].vector_id for number in range(DOCUMENTS)]
        known, rows = directory.store.vectors(ids)
        vectors = dict(zip(known.tolist(), rows, strict=True))
        return adapter, np.stack([vectors[vector_id] for vector_id in ids])


def wait_for(path: Path, job: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: path.exists() or job.poll() is not None)


@pytest.mark.slow
def test_killed_and_started_again(
    longmatch_process: Longmatch,
    start_longmatch: Start,
    tiny_checkpoint: Path,
    tmp_path: Path,
    tier: Tier,
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)

    def index(name: str) -> tuple[object, ...]:
        return ("index", corpus, "--adapt", "--data", tmp_path / name)

    run = longmatch_process(*index("whole"), checkpoint=tiny_checkpoint)
    assert run.returncode == 0, run.stderr
    expected, vectors = contents(tmp_path / "whole", tiny_checkpoint)
    for moment in ("lock", ADAPTER_FILE, STORE_FILE) if tier.sweep else (ADAPTER_FILE,):
        job = start_longmatch(*index(moment), checkpoint=tiny_checkpoint)
        wait_for(tmp_path / moment / moment, job)
        job.kill()
        assert job.wait() != 0  # it had not come to its end
        again = longmatch_process(*index(moment), checkpoint=tiny_checkpoint)
        assert again.returncode == 0, again.stderr
        assert ("is kept" in again.stderr) == (moment != "lock")
        found, other = contents(tmp_path / moment, tiny_checkpoint)
        assert found.digest == expected.digest
        np.testing.assert_allclose(other, vectors, atol=1e-5)

"""What does a large corpus cost before the first step of pretraining, in memory, disk and time?

    python -m benchmarks.pretraining.scale

Corpora are of short made-up documents, as many as the option says. Each is measured in a process of
its own, on one thread: from the call to the first step of `wp+sp` with a small SMITH of random
weights. The memory rises by what is kept of each document; the texts stay on the disk, as tokens.
"""

import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.common import SEED, commit, make_record, write_record
from benchmarks.pretraining.plan import SMITH, Size, creation, pretraining
from benchmarks.pretraining.table import scale_table
from encoder.checkpoint import DEFAULT_CHECKPOINT
from encoder.export.create import Recipe, create_checkpoint
from index.progress import SilentProgress
from training.comparison.job import to_toml
from training.data.corpus import read_training_data
from training.data.files import CorpusFiles, EncoderJob
from training.jobs.train_encoder import prepare_sources, read_tokens, run_training

DOCUMENTS = [50_000, 700_000]
SIZE = Size(
    tokens=64, pretraining_steps={SMITH: 1}, tuning_steps={}, pretraining_documents=8, layers=1
)
_WORDS = 24  # of a document, in two sentences
_SYLLABLES = ("ba", "con", "der", "fin", "gra", "lo", "mi", "nus", "per", "ra", "sto", "ti", "ver")
_KILOBYTE = 1 if sys.platform == "darwin" else 1024  # of `ru_maxrss`


class FirstStep:
    """Notes when the first step of a run is done."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = time.monotonic()

    def started(self, step: int, steps: int) -> None:
        """Ignore it."""

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Note the time."""
        self.seconds = time.monotonic() - self._began

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Ignore it."""


def main(
    documents: Annotated[
        list[int] | None, typer.Option(min=40, help="Of a corpus; repeatable.")
    ] = None,
) -> None:
    """Begin pretraining on corpora of several sizes."""
    source, sizes = commit(), documents or DOCUMENTS
    context = multiprocessing.get_context("spawn")
    results = {}
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as folder,
            ProcessPoolExecutor(1, mp_context=context) as process,
        ):
            results[str(size)] = process.submit(measure, Path(folder), size).result()
    record = make_record("pretraining-scale", source, {"threads": 1, "words": _WORDS}, results)
    typer.echo(scale_table(record))
    write_record(record)


def measure(folder: Path, documents: int) -> dict[str, float]:
    """Write a corpus of so many documents, and pretrain for one step."""
    torch.set_num_threads(1)
    corpus = folder / "corpus.jsonl"
    write_documents(corpus, documents)
    recipe = Recipe.model_validate(creation(SMITH, SIZE))
    start = create_checkpoint(recipe, str(DEFAULT_CHECKPOINT), folder / "start")
    (folder / "recipe.toml").write_text(to_toml(pretraining(SMITH, SIZE)), encoding="utf-8")
    work = folder / "work"
    job = EncoderJob(
        recipe=folder / "recipe.toml",
        start=start,
        files=[CorpusFiles(corpus)],
        output=folder / "out",
        work=work,
        precisions=[],
    )
    before, first = _resident(), FirstStep()
    encoded = read_tokens(corpus, work / "tokens", start, SilentProgress())
    data = read_training_data([(job.files[0], encoded)])
    sources = prepare_sources(job, data, SilentProgress())
    ready = _resident()
    run_training(job, data, sources, first)
    return {
        "text_bytes": corpus.stat().st_size,
        "disk_bytes": sum(one.stat().st_size for one in (work / "tokens").iterdir()),
        "memory_bytes": ready - before,
        "peak_bytes": _peak(),
        "seconds_to_first_step": first.seconds,
    }


def write_documents(path: Path, documents: int) -> None:
    """Write documents of random words, the same in every call; no two are equal."""
    chosen = random.Random(SEED)
    words = [a + b for a in _SYLLABLES for b in _SYLLABLES]
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            some = chosen.choices(words, k=_WORDS)
            half = _WORDS // 2
            text = f"{' '.join(some[:half]).title()} {number}. {' '.join(some[half:]).title()}."
            file.write(json.dumps({"id": f"document-{number}", "text": text}) + "\n")


def _resident() -> int:
    """Return the resident memory in bytes; Linux only."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE


if __name__ == "__main__":
    typer.run(main)

"""The models of the CoLDE benchmark, each trained once and its vectors kept on the disk."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.ablation.data import AblationData
from benchmarks.colde.data import READINGS, WHOLE, Answers, Truth, answer, auc_of
from benchmarks.colde.models import Planned, train_and_read
from encoder.arrays import Float32
from encoder.atomic_files import replace_durably
from training.data.corpus import data_fingerprint

Readings = Mapping[str, Sequence[Float32]]  # of each reading the vectors of each corpus
_RUN_FORMAT = 1  # of kept results; results in another format are trained again


@dataclass(frozen=True, slots=True)
class Bench:
    """Shared by all models.

    Attributes:
        data: training data.
        truths: labels of each corpus.
        work: the directory that keeps vectors and unfinished runs.
        report: called with a line about each model.
        fingerprint: of data and checkpoint.
    """

    data: AblationData
    truths: list[Truth]
    work: Path
    report: Callable[[str], object]
    fingerprint: str


def new_bench(
    data: AblationData, truths: list[Truth], work: Path, report: Callable[[str], object]
) -> Bench:
    """Make the shared state of a run."""
    return Bench(data, truths, work, report, _fingerprint(data))


def train_all(bench: Bench, plan: Sequence[Planned], end: float = np.inf) -> None:
    """Train the models that are not kept yet, in order.

    Args:
        bench: that keeps them.
        plan: the models.
        end: none is started after this time of the monotonic clock, in seconds.
    """
    for planned in plan:
        path = _path(bench, planned)
        if path.exists():
            continue
        if time.monotonic() >= end:
            bench.report(f"{_name(planned)}: left for the next call")
            continue
        start = time.process_time()
        readings = train_and_read(planned, bench.data, bench.truths, path.with_suffix(""))
        keep(bench, planned, readings, time.process_time() - start)
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        bench.report(f"{_name(planned)}: {time.process_time() - start:.0f} s")


def keep(bench: Bench, planned: Planned, readings: Readings, seconds: float) -> None:
    """Keep the vectors of a trained model, and the CPU time that it took."""
    path = _path(bench, planned)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    arrays = {
        f"{reading} {number}": vectors.astype(np.float16)
        for reading, corpora in readings.items()
        for number, vectors in enumerate(corpora)
    }
    with partial.open("wb") as file:
        np.savez_compressed(file, seconds=np.float64(seconds), **arrays)
    replace_durably(partial, path)


def is_kept(bench: Bench, planned: Planned) -> bool:
    """Say whether a model is trained."""
    return _path(bench, planned).exists()


def answers_of(bench: Bench, *models: Planned) -> list[Answers]:
    """Return what a model answers in each corpus; of several models, by the mean of cosines."""
    kept = [_read(_path(bench, one)) for one in models]
    result = []
    for number, truth in enumerate(bench.truths):
        readings = {
            reading: np.concatenate([one[reading][number] for one in kept], axis=1)
            / np.float32(len(kept) ** 0.5)
            for reading in READINGS
        }
        result.append(answer(truth, readings))
    return result


def validation_auc(bench: Bench, planned: Planned) -> float:
    """Return the AUC of the validation pairs, documents as written; corpora count alike."""
    corpora = _read(_path(bench, planned))[WHOLE]
    return float(
        np.mean(
            [
                auc_of(vectors, truth.valid)
                for vectors, truth in zip(corpora, bench.truths, strict=True)
            ]
        )
    )


def cpu_seconds(bench: Bench, planned: Planned) -> float:
    """Return what training a model and reading all documents took."""
    with np.load(_path(bench, planned), allow_pickle=False) as arrays:
        return float(arrays["seconds"])


def _name(planned: Planned) -> str:
    return f"{planned.row}, rate {planned.rate:g}, seed {planned.seed}"


def _fingerprint(data: AblationData) -> str:
    return f"{data.checkpoint.fingerprint} {data_fingerprint(data.corpora)}"


def _path(bench: Bench, planned: Planned) -> Path:
    decides = json.dumps(
        [_RUN_FORMAT, bench.fingerprint, planned.seed, planned.settings], sort_keys=True
    )
    return bench.work / f"{hashlib.sha256(decides.encode()).hexdigest()[:24]}.npz"


def _read(path: Path) -> dict[str, list[Float32]]:
    with np.load(path, allow_pickle=False) as arrays:
        corpora = sum(name.startswith(f"{READINGS[0]} ") for name in arrays.files)
        return {
            reading: [arrays[f"{reading} {n}"].astype(np.float32) for n in range(corpora)]
            for reading in READINGS
        }

"""The cells of an ablation: one model each, trained and evaluated once, results kept on disk."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation.data import (
    NDCG,
    PAIR_MEASURES,
    AblationData,
    ValidationScores,
    evaluate_vectors,
    pair_figures,
)
from encoder.arrays import Float32, Float64
from encoder.atomic_files import replace_durably
from evaluation.significance import compare_paired
from training.data.corpus import data_fingerprint

_RUN = "run"


@dataclass(frozen=True, slots=True)
class Cell:
    """One model of an ablation.

    Attributes:
        part: ablation that the cell belongs to; each has a table.
        row: of that table.
        seed: of weights and sampling.
        settings: everything that affects the outcome besides the data, JSON-serialisable.
        encode: makes and trains the model, with a directory for the state of its runs, and
            returns the document vectors of each corpus.
    """

    part: str
    row: str
    seed: int
    settings: Mapping[str, Any]
    encode: Callable[[Path], Sequence[Float32]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cell.

    Attributes:
        seed: of the cell.
        settings: of the cell.
        cpu_seconds: of training it and encoding the corpora.
        validation: scores, one for each corpus.
    """

    seed: int
    settings: Mapping[str, Any]
    cpu_seconds: float
    validation: tuple[ValidationScores, ...]


Outcomes = dict[str, dict[str, list[Outcome]]]  # part, row


def run_cells(
    cells: Sequence[Cell],
    data: AblationData,
    work: Path,
    seconds: float | None,
    report: Callable[[str], object],
) -> Outcomes:
    """Run the cells that are not kept yet, in order; return all that are.

    Args:
        cells: of any parts.
        data: training and validation data.
        work: the directory that keeps outcomes and unfinished runs.
        seconds: after which no cell is begun; no limit when not given.
        report: called with a line about each cell.
    """
    end = np.inf if seconds is None else time.monotonic() + seconds
    known = f"{data.checkpoint.fingerprint} {data_fingerprint(data.corpora)}"
    outcomes: Outcomes = {}
    for cell in cells:
        path = work / f"{_name_of(cell, known)}.json"
        if not path.exists():
            if time.monotonic() >= end:
                report(f"{cell.part}, {cell.row}, seed {cell.seed}: left for the next call")
                continue
            _keep(path, _run(cell, data, path.with_suffix("")))
        outcome = _read(path, cell)
        outcomes.setdefault(cell.part, {}).setdefault(cell.row, []).append(outcome)
        report(f"{cell.part}, {cell.row}, seed {cell.seed}: {outcome.cpu_seconds:.0f} s")
    return outcomes


def summarise(rows: Mapping[str, Sequence[Outcome]], data: AblationData) -> dict[str, Any]:
    """Lay the outcomes of one part together: means over seeds, rows against the first row.

    A query counts with its mean over the seeds, so that intervals and p report what other queries
    would give; `by_seed` says what other seeds do.
    """
    reference = next(iter(rows))
    against = _queries(rows[reference])
    result = {}
    for row, outcomes in rows.items():
        compared = compare_paired(np.concatenate(_queries(outcomes)), np.concatenate(against))
        result[row] = {
            "settings": outcomes[0].settings,
            "seeds": [outcome.seed for outcome in outcomes],
            "cpu_seconds": float(np.mean([outcome.cpu_seconds for outcome in outcomes])),
            "by_seed": [_mean(_corpora_of(outcome, data), NDCG) for outcome in outcomes],
            "corpora": _mean_over_seeds([_corpora_of(outcome, data) for outcome in outcomes]),
            "against": {} if row == reference else {NDCG: asdict(compared)},
        }
    return {"reference": reference, "rows": result}


def mean_over_corpora(row: Mapping[str, Any], measure: str) -> float:
    """Return a figure of a row of `summarise`, all corpora alike."""
    return _mean(row["corpora"], measure)


def _corpora_of(outcome: Outcome, data: AblationData) -> dict[str, dict[str, float]]:
    return {
        name: {NDCG: float(scores.ndcg.mean()), **pair_figures(corpus, scores.scores)}
        for name, corpus, scores in zip(data.names, data.corpora, outcome.validation, strict=True)
    }


def _mean_over_seeds(seeds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            measure: float(np.mean([seed[name][measure] for seed in seeds]))
            for measure in (NDCG, *PAIR_MEASURES)
        }
        for name in seeds[0]
    }


def _mean(corpora: Mapping[str, Mapping[str, float]], measure: str) -> float:
    return float(np.mean([figures[measure] for figures in corpora.values()]))


def _queries(outcomes: Sequence[Outcome]) -> list[Float64]:
    """Return nDCG@10 of the queries of each corpus, the mean over the seeds."""
    return [
        np.mean([one.ndcg for one in of_corpus], axis=0)
        for of_corpus in zip(*(outcome.validation for outcome in outcomes), strict=True)
    ]


def _run(cell: Cell, data: AblationData, directory: Path) -> dict[str, Any]:
    start = time.process_time()
    vectors = cell.encode(directory)
    seconds = time.process_time() - start
    scores = [evaluate_vectors(*pair) for pair in zip(data.corpora, vectors, strict=True)]
    shutil.rmtree(directory, ignore_errors=True)  # gigabytes of optimiser states otherwise
    return {
        "cpu_seconds": seconds,
        "ndcg": [one.ndcg.tolist() for one in scores],
        "scores": [one.scores.astype(float).tolist() for one in scores],
    }


def _keep(path: Path, outcome: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(outcome), encoding="utf-8")
    replace_durably(partial, path)


def _read(path: Path, cell: Cell) -> Outcome:
    kept = json.loads(path.read_text(encoding="utf-8"))
    scores = tuple(
        ValidationScores(np.array(ndcg), np.array(scores, dtype=np.float32))
        for ndcg, scores in zip(kept["ndcg"], kept["scores"], strict=True)
    )
    return Outcome(cell.seed, cell.settings, kept["cpu_seconds"], scores)


def _name_of(cell: Cell, data: str) -> str:
    decides = json.dumps([data, cell.part, cell.row, cell.seed, cell.settings], sort_keys=True)
    readable = "".join(c if c.isalnum() else "-" for c in f"{cell.part}-{cell.row}-{cell.seed}")
    return f"{readable}-{hashlib.sha256(decides.encode()).hexdigest()[:12]}"

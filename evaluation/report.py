"""The report of an evaluation, as JSON: every system on the same queries and pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from evaluation.judgements import PairRows, Qrels
from evaluation.metrics import (
    MEASURES,
    QueryMeasures,
    choose_threshold,
    estimate_pairs_of_seeds,
    evaluate_per_query,
    measure_pairs,
)
from evaluation.significance import compare_paired, estimate_means
from evaluation.systems import System, rank

Report = dict[str, Any]

# The largest number of tokens of each bucket; longer documents are in one more bucket.
LENGTHS = (512, 2_048, 8_192)
BUCKETS = ("<=512", "513-2048", "2049-8192", ">8192")
USUAL_REFERENCE = "tfidf"


@dataclass(frozen=True, slots=True)
class RetrievalTask:
    """Retrieval: which documents are relevant to these queries?

    Attributes:
        ids: N ids of the documents.
        query_ids: Q ids.
        rows: Int64[Q], the rows of the queries in the systems.
        tokens: Int64[Q], number of tokens of each query.
        qrels: the judgements.
    """

    ids: tuple[str, ...]
    query_ids: tuple[str, ...]
    rows: Int64
    tokens: Int64
    qrels: Qrels


@dataclass(frozen=True, slots=True)
class PairTask:
    """Pair classification: are the two documents of each pair similar?

    Attributes:
        pairs: P pairs to classify.
        valid: other pairs, to choose the threshold on; without them, the pairs themselves.
        tokens: Int64[P], number of tokens of the longer document of each pair.
    """

    pairs: PairRows
    valid: PairRows | None
    tokens: Int64


def choose_reference(names: Sequence[str]) -> str:
    """Return the system that the others are compared with: TF-IDF, or else the first."""
    return USUAL_REFERENCE if USUAL_REFERENCE in names else names[0]


def length_buckets(tokens: Int64) -> Int64:
    """Return the position in `BUCKETS` of each number of tokens."""
    return np.searchsorted(np.array(LENGTHS), tokens, side="left").astype(np.int64)


def report_retrieval(
    models: Mapping[str, Sequence[System]], task: RetrievalTask, reference: str
) -> Report:
    """Measure every model: means with intervals, by query length, and against the reference.

    Args:
        models: by name, each with its trainings; of several, the mean of each query over them.
        task: queries and their judgements.
        reference: name of the model that the others are compared with.

    Returns:
        As JSON; of several trainings also the means of each, `by_seed`.
    """
    judged, by_seed = {}, {}
    for name, systems in models.items():
        runs = [rank(system, task.ids, task.query_ids, task.rows) for system in systems]
        found = [evaluate_per_query(run, task.qrels) for run in runs]
        values = np.mean([measures.values for measures in found], axis=0)
        judged[name] = replace(found[0], values=values)
        by_seed[name] = [dict(zip(MEASURES, m.values.mean(0).tolist(), strict=True)) for m in found]
    kept = next(iter(judged.values())).query_ids
    length_of = dict(zip(task.query_ids, task.tokens.tolist(), strict=True))
    buckets = length_buckets(np.array([length_of[query] for query in kept], dtype=np.int64))
    report: Report = {
        "queries": len(kept),
        "judgements": sum(len(task.qrels[query]) for query in kept),
        "reference": reference,
        "systems": {},
    }
    for name, measured in judged.items():
        values = measured.values
        figures: Report = {"settings": models[name][0].settings, **_means(values), "by_length": {}}
        for number, bucket in enumerate(BUCKETS):
            some = values[buckets == number]
            if len(some):
                figures["by_length"][bucket] = {"queries": len(some), **_means(some)}
        if name != reference:
            figures["against"] = _compare(measured, judged[reference])
        report["systems"][name] = figures
    return _with_seeds(report, by_seed)


def _with_seeds(report: Report, by_seed: Mapping[str, Sequence[Mapping[str, float]]]) -> Report:
    for name, seeds in by_seed.items():
        if len(seeds) > 1:
            report["systems"][name]["by_seed"] = list(seeds)
    return report


def report_pairs(models: Mapping[str, Sequence[System]], task: PairTask, reference: str) -> Report:
    """Measure every model: at its threshold, by length, accuracy against the reference.

    Without validation pairs the threshold is the best one on the pairs themselves. What depends on
    it is then an upper bound, and named so. Every training of a model has its own threshold;
    `threshold` is their mean. Intervals and p come from pairs, whose values are means over the
    trainings.

    Args:
        models: by name, each with its trainings.
        task: pairs and their labels.
        reference: name of the model that the others are compared with.

    Returns:
        As JSON; of several trainings also the figures of each, `by_seed`.
    """
    pairs, valid = task.pairs, task.valid or task.pairs
    buckets = length_buckets(task.tokens)
    suffix = "" if task.valid else "_upper_bound"
    report: Report = {
        "pairs": len(pairs.labels),
        "positive": int(pairs.labels.sum()),
        "threshold_chosen_on": "validation pairs" if task.valid else "the same pairs",
        "reference": reference,
        "systems": {},
    }
    right, by_seed = {}, {}
    for name, systems in models.items():
        seeds = []
        for system in systems:
            chosen = system.score_pairs(valid.sources, valid.targets)
            scores = system.score_pairs(pairs.sources, pairs.targets)
            seeds.append((scores, choose_threshold(chosen, valid.labels)))
        right[name] = np.mean([(s >= limit) == pairs.labels for s, limit in seeds], axis=0)
        by_seed[name] = [measure_pairs(s, pairs.labels, limit) for s, limit in seeds]
        every_pair = np.ones(len(pairs.labels), dtype=np.bool_)
        figures: Report = {
            "settings": systems[0].settings,
            "threshold": float(np.mean([limit for _, limit in seeds])),
        }
        figures |= _pair_figures(seeds, pairs, every_pair, suffix)
        figures["by_length"] = {
            bucket: {"pairs": int((buckets == number).sum())}
            | _pair_figures(seeds, pairs, buckets == number, suffix)
            for number, bucket in enumerate(BUCKETS)
            if (buckets == number).any()
        }
        report["systems"][name] = figures
    for name, system in report["systems"].items():
        if name != reference:
            compared = compare_paired(right[name], right[reference])
            system["against"] = {f"accuracy{suffix}": asdict(compared)}
    return _with_seeds(report, by_seed)


def _means(values: np.ndarray[Any, np.dtype[np.float64]]) -> Report:
    return {
        name: asdict(estimate)
        for name, estimate in zip(MEASURES, estimate_means(values), strict=True)
    }


def _compare(measures: QueryMeasures, other: QueryMeasures) -> Report:
    return {
        name: asdict(compare_paired(measures.values[:, column], other.values[:, column]))
        for column, name in enumerate(MEASURES)
    }


def _pair_figures(
    seeds: Sequence[tuple[Float32, float]], pairs: PairRows, chosen: Any, suffix: str
) -> Report:
    some = [(scores[chosen], threshold) for scores, threshold in seeds]
    figures = estimate_pairs_of_seeds(some, pairs.labels[chosen])
    return {
        name if name == "AUC" else name + suffix: asdict(figure) for name, figure in figures.items()
    }

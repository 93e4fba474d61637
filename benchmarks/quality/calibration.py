"""Are probabilities and thresholds accurate on corpora that nothing was fitted on?

Every corpus of a folder is left out in turn: the map is fitted to the pairs of the others, as
`longmatch lab fit-calibration` does, and states the probabilities of its pairs. The threshold for
1 % false positives comes from random pairs of each corpus and is tested on other pairs: newly
sampled ones, and pairs of held-out documents.

For another encoder, the maps of the default checkpoint, all of them, state the probabilities.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import SEED, commit, markdown_table, publish
from benchmarks.quality.retrieval import KEPT_BLOCKS
from encoder.arrays import Float64, Int64
from encoder.calibration import KindCalibration, match_probabilities, read_calibration
from encoder.checkpoint import DEFAULT_CHECKPOINT, SENTENCE_MODEL, load_checkpoint
from encoder.opening import find_encoder, open_encoder
from evaluation.fitting.calibration import (
    ScoredPairs,
    equal_mass_bins,
    errors_of_perfect,
    measure_error,
    read_scored_pairs,
    state_left_out,
)
from index.lexical.scoring import TermRows
from index.progress import SilentProgress
from index.search.corpus_calibration import (
    Channels,
    NullDistribution,
    measure_channels,
    sample_pairs,
    score_channels,
)
from index.search.records import Mode
from index.search.score import LinearFusion

RATE = 0.01
REPLICATES = 200


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora with judgements.")],
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
    name: Annotated[str, typer.Option("--encoder", help="As of longmatch index.")] = "best",
) -> None:
    """Measure calibration error on left-out corpora, and false positives at 1 %."""
    source = commit()
    encoder = open_encoder(find_encoder(name))
    shipped = None
    if encoder.checkpoint.architecture == SENTENCE_MODEL:
        shipped = read_calibration(load_checkpoint(DEFAULT_CHECKPOINT))
    scored: list[Mapping[Mode, ScoredPairs]] = []
    tried = {}
    for folder in sorted(path.parent for path in data.glob("*/qrels.tsv")):
        typer.echo(folder.name, err=True)
        channels, rule, pairs = read_scored_pairs(
            folder, blocks / folder.name, encoder, SilentProgress()
        )
        scored.append(pairs)
        random_pairs = {mode: each.random_pairs for mode, each in pairs.items()}
        tried[folder.name] = try_thresholds(channels, rule, random_pairs)
    results = {
        mode: {
            "calibration_error": measure(
                [pairs[mode] for pairs in scored], None if shipped is None else shipped.kinds[mode]
            ),
            "false_positives": {name: found[mode] for name, found in tried.items()},
        }
        for mode in scored[0]
    }
    settings = {"rate": RATE, "checkpoint": encoder.checkpoint.name}
    publish("calibration", source, settings, results, table)


def measure(
    corpora: list[ScoredPairs], fitted: KindCalibration | None = None
) -> dict[str, dict[str, Any]]:
    """Measure the errors on each corpus, by this map or one fitted without it, and pooled."""
    stated = [
        match_probabilities(fitted.map.of_corpus(each.random_pairs.tail), each.standard)
        for each in corpora
        if fitted is not None
    ] or state_left_out(corpora)
    counts = [len(each.labels) for each in corpora]
    labels, together = np.concatenate([each.labels for each in corpora]), np.concatenate(stated)
    weights = np.repeat([len(labels) / len(counts) / count for count in counts], counts)
    queries = np.concatenate([each.queries + number * 10**6 for number, each in enumerate(corpora)])
    found = {"pooled": _error(together, labels, weights, queries)}
    for each, probabilities in zip(corpora, stated, strict=True):
        alike = np.ones(len(each.labels))
        found[each.fitted_on.name] = _error(probabilities, each.labels, alike, each.queries)
    return found


def try_thresholds(
    channels: Channels, rule: LinearFusion, measured: Mapping[Mode, NullDistribution]
) -> dict[Mode, dict[str, float]]:
    """Return for each mode a threshold, and the share of other random pairs that reaches it.

    Args:
        channels: of N documents.
        rule: of the corpus.
        measured: score distribution of their random pairs, sampled with `SEED`.
    """
    progress = SilentProgress()
    documents = len(channels.vectors)
    fresh = score_channels(channels, sample_pairs(documents, SEED + 1), progress).by_mode(rule)
    order = np.random.default_rng(SEED).permutation(documents)
    seen, unseen = (_some(channels, order[start::2]) for start in (0, 1))
    of_half = measure_channels(seen, rule, progress, seed=SEED).kinds
    others = sample_pairs(len(unseen.vectors), SEED)
    of_unseen = score_channels(unseen, others, progress).by_mode(rule)
    found = {}
    for mode, random_pairs in measured.items():
        threshold, half = (
            next(t for t in sampled.thresholds if t.false_positive_rate == RATE)
            for sampled in (random_pairs, of_half[mode])
        )
        found[mode] = {
            "documents": documents,
            "threshold": threshold.score,
            "fresh_pairs": float((fresh[mode] >= threshold.score).mean()),
            "unseen_documents": float((of_unseen[mode] >= half.score).mean()),
        }
    return found


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    results: dict[str, dict[str, Any]] = record["results"]
    errors = markdown_table(
        ["mode", "left out", "pairs", "ECE (95 % interval)", "of a perfect one", "log loss"],
        [
            [
                mode,
                corpus,
                errors["pairs"],
                f"{errors['equal_mass']:.3f} ({errors['low']:.3f} to {errors['high']:.3f})",
                f"{errors['equal_mass_of_perfect']:.3f} (to {errors['perfect_at_most']:.3f})",
                errors["log_loss"],
            ]
            for mode, result in results.items()
            for corpus, errors in result["calibration_error"].items()
        ],
    )
    thresholds = markdown_table(
        ["mode", "threshold for 1 %", "documents", "score", "on fresh pairs", "unseen documents"],
        [
            [
                mode,
                corpus,
                figures["documents"],
                f"{figures['threshold']:.4f}",
                f"{figures['fresh_pairs']:.2%}",
                f"{figures['unseen_documents']:.2%}",
            ]
            for mode, result in results.items()
            for corpus, figures in result["false_positives"].items()
        ],
    )
    return f"{errors}\n\n{thresholds}"


def _error(
    probabilities: Float64, labels: Int64, weights: Float64, queries: Int64
) -> dict[str, Any]:
    """Measure the error; its interval is a bootstrap over queries, less what resampling adds."""
    numbers = equal_mass_bins(probabilities, weights)
    error = measure_error(probabilities, labels, weights)
    random = np.random.default_rng(SEED)
    names, which = np.unique(queries, return_inverse=True)
    gaps = weights * (probabilities - labels)
    resampled = []
    for _ in range(REPLICATES):
        times = np.bincount(random.integers(len(names), size=len(names)), minlength=len(names))
        sums = np.bincount(numbers, gaps * times[which])
        resampled.append(np.abs(sums).sum() / (weights * times[which]).sum())
    low, high = np.quantile(resampled, [0.025, 0.975]) - (np.mean(resampled) - error.equal_mass)
    perfect = np.quantile(errors_of_perfect(probabilities, weights, numbers), 0.95)
    return {
        "pairs": len(labels),
        **asdict(error),
        "low": max(0.0, float(low)),
        "high": float(high),
        "perfect_at_most": float(perfect),
    }


def _some(channels: Channels, rows: Int64) -> Channels:
    """Return the channels of these rows; words weigh what they weigh in the whole corpus."""
    words = None if channels.words is None else _chosen(channels.words, rows)
    blocks = None if channels.blocks is None else [channels.blocks[row] for row in rows.tolist()]
    return Channels(channels.vectors[rows], words, blocks)


def _chosen(words: TermRows, rows: Int64) -> TermRows:
    starts = np.append(0, words.ends[:-1])[rows]
    ends = words.ends[rows]
    places = np.concatenate([np.arange(*bounds) for bounds in zip(starts, ends, strict=True)])
    return TermRows(words.term_ids[places], words.weights[places], np.cumsum(ends - starts))


if __name__ == "__main__":
    typer.run(main)

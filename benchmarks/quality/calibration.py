"""Are probabilities and thresholds accurate on pairs that nothing was fitted on?

The test pairs of the corpora with judgements (`pairs.test.jsonl.gz`) are scored in each mode by a
checkpoint that has a calibration; the threshold for 1 % false positives comes from random pairs of
each corpus and is tested on other pairs: newly sampled ones, and pairs of held-out documents.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import SEED, commit, markdown_table, publish
from encoder.arrays import Float64, Int64
from encoder.calibration import KindCalibration, log_odds, match_probabilities, read_calibration
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import embed_with_blocks
from evaluation.fitting.calibration import (
    ScoredPairs,
    equal_mass_bins,
    error_of_perfect,
    measure_error,
    score_labelled_pairs,
)
from index.corpus.reader import read_documents
from index.embed import read_aligned_corpus
from index.errors import CorpusError
from index.lexical.scoring import TermRows, rows_of_texts
from index.progress import SilentProgress
from index.search.corpus_calibration import (
    Channels,
    NullDistribution,
    false_positive_rates,
    measure_channels,
    sample_pairs,
    score_channels,
    threshold_for,
)
from index.search.fusion import LinearFusion, read_fusion
from index.search.records import Mode

RATE = 0.01
PAIRS_FILE = "pairs.test.jsonl.gz"
MAP = "false positive rate"  # that probabilities are read from
MODES: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")


@dataclass(frozen=True, slots=True)
class Stated:
    """Probabilities Float64[P] of the pairs of a corpus, and labels Int64[P]."""

    probabilities: Float64
    labels: Int64


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora, each with its test pairs.")],
    vectors: Annotated[
        Path | None,
        typer.Option(help="A folder of <corpus>.npz, as `embed --blocks` wrote them."),
    ] = None,
    checkpoint: Annotated[Path, typer.Option(help="One with a calibration.")] = DEFAULT_CHECKPOINT,
) -> None:
    """Measure calibration error on test pairs, and false positives at the threshold for 1 %."""
    source = commit()
    opened = load_checkpoint(checkpoint)
    calibration = read_calibration(opened)
    if calibration is None:
        raise CorpusError(f"{checkpoint}: has no calibration: run longmatch lab fit-calibration")
    measured = [mode for mode in MODES if mode in calibration.kinds]
    stated: dict[Mode, dict[str, Stated]] = {mode: {} for mode in measured}
    tried: dict[Mode, dict[str, dict[str, float]]] = {mode: {} for mode in measured}
    for folder in sorted(path.parent for path in data.glob(f"*/{PAIRS_FILE}")):
        ids, channels = _channels(folder, vectors, opened)
        rule = measure_channels(channels, read_fusion(opened), SilentProgress(), seed=SEED).rule
        pairs = score_labelled_pairs(
            folder / PAIRS_FILE, ids, channels, rule, SilentProgress(), SEED
        )
        random_pairs = {mode: pairs[mode].random_pairs for mode in measured}
        thresholds = try_thresholds(channels, rule, random_pairs)
        for mode in measured:
            stated[mode][folder.name] = state(calibration.kinds[mode], pairs[mode])
            tried[mode][folder.name] = thresholds[mode]
    if not any(stated.values()):
        raise CorpusError(f"{data}: no folder in it holds {PAIRS_FILE}")
    results = {
        mode: {"calibration_error": measure(stated[mode]), "false_positives": tried[mode]}
        for mode in measured
    }
    settings = {"rate": RATE, "checkpoint": opened.name, "calibration": calibration.version}
    publish("calibration", source, settings, results, table)


def state(maps: KindCalibration, pairs: ScoredPairs) -> Stated:
    """Return the probabilities that are stated for labelled pairs."""
    odds = log_odds(false_positive_rates(pairs.random_pairs, pairs.scores))
    return Stated(match_probabilities(maps.by_false_positive_rate.map, odds), pairs.labels)


def measure(stated: dict[str, Stated]) -> dict[str, dict[str, Any]]:
    """Measure the errors: all pairs alike, all corpora alike, and each corpus."""
    probabilities = np.concatenate([pairs.probabilities for pairs in stated.values()])
    labels = np.concatenate([pairs.labels for pairs in stated.values()])
    counts = [len(pairs.labels) for pairs in stated.values()]
    corpora = np.repeat([len(labels) / len(counts) / count for count in counts], counts)
    errors = {
        "pooled": _error(probabilities, labels, np.ones(len(labels))),
        "corpora alike": _error(probabilities, labels, corpora),
    }
    for corpus, pairs in stated.items():
        errors[corpus] = _error(pairs.probabilities, pairs.labels, np.ones(len(pairs.labels)))
    return {MAP: errors}


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
    of_half = measure_channels(seen, rule, progress, seed=SEED).by_mode
    others = sample_pairs(len(unseen.vectors), SEED)
    of_unseen = score_channels(unseen, others, progress).by_mode(rule)
    found = {}
    for mode, random_pairs in measured.items():
        threshold = threshold_for(random_pairs, RATE)
        half = threshold_for(of_half[mode], RATE)
        found[mode] = {
            "documents": documents,
            "threshold": threshold.score,
            "low": threshold.low,
            "high": threshold.high,
            "fresh_pairs": float((fresh[mode] >= threshold.score).mean()),
            "unseen_documents": float((of_unseen[mode] >= half.score).mean()),
        }
    return found


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    results: dict[str, dict[str, Any]] = record["results"]
    errors = markdown_table(
        [
            *("mode", "probability from", "pairs of", "number"),
            *("ECE", "of a perfect one", "equal width", "log loss"),
        ],
        [
            [
                mode,
                name,
                corpus,
                errors["pairs"],
                errors["equal_mass"],
                f"{errors['equal_mass_of_perfect']:.3g} (to {errors['perfect_at_most']:.3g})",
                errors["equal_width"],
                errors["log_loss"],
            ]
            for mode, result in results.items()
            for name, by_corpus in result["calibration_error"].items()
            for corpus, errors in by_corpus.items()
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


def _error(probabilities: Float64, labels: Int64, weights: Float64) -> dict[str, Any]:
    numbers = equal_mass_bins(probabilities, weights)
    return {
        "pairs": len(labels),
        **asdict(measure_error(probabilities, labels, weights)),
        "perfect_at_most": error_of_perfect(probabilities, weights, numbers).high,
    }


def _channels(
    folder: Path, vectors: Path | None, checkpoint: Checkpoint
) -> tuple[tuple[str, ...], Channels]:
    if vectors is not None:
        embedded = read_aligned_corpus(vectors / f"{folder.name}.npz")
    else:
        embedded = embed_with_blocks(folder, OnnxEncoder(checkpoint), SilentProgress())
    documents = read_documents(folder, embedded.ids)
    words = rows_of_texts(
        [document.text for document in documents], [document.title for document in documents]
    )
    return embedded.ids, Channels(embedded.vectors, words, embedded.aligned)


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

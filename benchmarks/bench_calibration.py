"""How well a probability and a threshold keep what they say, on pairs that nothing was fitted on.

The test pairs of the corpora with judgements (`pairs.test.jsonl.gz`) are scored by a checkpoint
that has a calibration; the threshold for 1 % false positives comes from random pairs of each corpus
and is tried on others: on pairs drawn anew, and on those of documents that it never saw.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import RESULTS, SEED, commit, make_record, markdown_table, write_record
from encoder.calibration import (
    SEMANTIC,
    KindCalibration,
    log_odds,
    match_probabilities,
    read_calibration,
)
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.calibrate import ScoredPairs, measure_error
from index.calibration_error import (
    Float64,
    ReliabilityBin,
    equal_mass_bins,
    error_of_perfect,
    reliability,
)
from index.embed import EmbeddedCorpus, embed_corpus, read_embedded_corpus
from index.errors import CorpusError
from index.observer import SilentObserver
from index.plots import plot_reliability
from index.random_pairs import (
    draw_pairs,
    false_positive_rates,
    measure_random_pairs,
    pair_scores,
    threshold_for,
)
from index.vector_index import Float32, Int64
from service.commands.calibration import score_corpus

RATE = 0.01
PAIRS_FILE = "pairs.test.jsonl.gz"
MAPS = ("score", "false positive rate")


@dataclass(frozen=True, slots=True)
class Stated:
    """Probabilities Float64[P] of the pairs of a corpus by each of `MAPS`; labels Int64[P]."""

    by_map: dict[str, Float64]
    labels: Int64


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora, each with its test pairs.")],
    vectors: Annotated[
        Path | None, typer.Option(help="A folder of <corpus>.npz, as `longmatch embed` wrote them.")
    ] = None,
    checkpoint: Annotated[Path, typer.Option(help="One with a calibration.")] = DEFAULT_CHECKPOINT,
    plot: Annotated[bool, typer.Option(help="Draw the reliability diagram, too.")] = True,
) -> None:
    """Measure calibration error on test pairs, and false positives at the threshold for 1 %."""
    source = commit()
    opened = load_checkpoint(checkpoint)
    calibration = read_calibration(opened)
    if calibration is None:
        raise CorpusError(f"{checkpoint}: has no calibration: run longmatch fit-calibration")
    maps = calibration.kinds[SEMANTIC]
    stated, thresholds = {}, {}
    for folder in sorted(path.parent for path in data.glob(f"*/{PAIRS_FILE}")):
        embedded = _embed(folder, vectors, opened)
        stated[folder.name] = state(maps, score_corpus(folder / PAIRS_FILE, embedded, SEED))
        thresholds[folder.name] = try_threshold(embedded.vectors)
    if not stated:
        raise CorpusError(f"{data}: no folder in it holds {PAIRS_FILE}")
    results = {"calibration_error": measure(stated), "false_positives": thresholds}
    settings = {"rate": RATE, "checkpoint": opened.name, "calibration": calibration.version}
    record = make_record("calibration", source, settings, results)
    typer.echo(table(record))
    write_record(record)
    if plot:
        plot_reliability(
            RESULTS / "calibration.svg", {name: diagram(stated, name) for name in MAPS}
        )


def state(maps: KindCalibration, pairs: ScoredPairs) -> Stated:
    """Return the probabilities that each map states for labelled pairs."""
    odds = log_odds(false_positive_rates(pairs.random_pairs, pairs.scores))
    by_map = {
        MAPS[0]: match_probabilities(maps.by_score.map, pairs.scores),
        MAPS[1]: match_probabilities(maps.by_false_positive_rate.map, odds),
    }
    return Stated(by_map, pairs.labels)


def measure(stated: dict[str, Stated]) -> dict[str, dict[str, Any]]:
    """Measure the errors of each map: all pairs alike, all corpora alike, and each corpus."""
    found: dict[str, dict[str, Any]] = {}
    for name in MAPS:
        probabilities, labels, corpora = _pooled(stated, name)
        alike = np.ones(len(labels))
        found[name] = {
            "pooled": _error(probabilities, labels, alike),
            "corpora alike": _error(probabilities, labels, corpora),
            **{
                corpus: _error(one.by_map[name], one.labels, np.ones(len(one.labels)))
                for corpus, one in stated.items()
            },
        }
    return found


def diagram(stated: dict[str, Stated], name: str) -> tuple[ReliabilityBin, ...]:
    """Return the bins of all pairs by one map."""
    probabilities, labels, _ = _pooled(stated, name)
    alike = np.ones(len(labels))
    return reliability(probabilities, labels, alike, equal_mass_bins(probabilities, alike))


def try_threshold(vectors: Float32) -> dict[str, float]:
    """Return a threshold, and the share of other random pairs that reaches it.

    Args:
        vectors: Float32[N, dimension], unit norm.
    """
    threshold = threshold_for(measure_random_pairs(vectors, seed=SEED), RATE)
    fresh = pair_scores(vectors, draw_pairs(len(vectors), SEED + 1))
    order = np.random.default_rng(SEED).permutation(len(vectors))
    seen, unseen = vectors[order[::2]], vectors[order[1::2]]
    of_half = threshold_for(measure_random_pairs(seen, seed=SEED), RATE)
    of_unseen = pair_scores(unseen, draw_pairs(len(unseen), SEED))
    return {
        "documents": len(vectors),
        "threshold": threshold.score,
        "low": threshold.low,
        "high": threshold.high,
        "fresh_pairs": float((fresh >= threshold.score).mean()),
        "unseen_documents": float((of_unseen >= of_half.score).mean()),
    }


def table(record: dict[str, Any]) -> str:
    """Lay out the record of a run."""
    errors: dict[str, dict[str, Any]] = record["results"]["calibration_error"]
    thresholds: dict[str, dict[str, float]] = record["results"]["false_positives"]
    first = markdown_table(
        [
            "probability from",
            "pairs of",
            "number",
            "ECE",
            "of a perfect one",
            "equal width",
            "log loss",
        ],
        [
            [
                name,
                corpus,
                one["pairs"],
                one["equal_mass"],
                f"{one['equal_mass_of_perfect']:.3g} (to {one['perfect_at_most']:.3g})",
                one["equal_width"],
                one["log_loss"],
            ]
            for name, by_corpus in errors.items()
            for corpus, one in by_corpus.items()
        ],
    )
    second = markdown_table(
        ["threshold for 1 %", "documents", "score", "on fresh pairs", "on unseen documents"],
        [
            [
                corpus,
                one["documents"],
                f"{one['threshold']:.4f}",
                f"{one['fresh_pairs']:.2%}",
                f"{one['unseen_documents']:.2%}",
            ]
            for corpus, one in thresholds.items()
        ],
    )
    return f"{first}\n\n{second}"


def _pooled(stated: dict[str, Stated], name: str) -> tuple[Float64, Int64, Float64]:
    """Return probabilities, labels and weights that make corpora count alike, each [P]."""
    probabilities = np.concatenate([one.by_map[name] for one in stated.values()])
    labels = np.concatenate([one.labels for one in stated.values()])
    counts = [len(one.labels) for one in stated.values()]
    weights = np.repeat([len(labels) / len(counts) / count for count in counts], counts)
    return probabilities, labels, weights


def _error(probabilities: Float64, labels: Int64, weights: Float64) -> dict[str, Any]:
    numbers = equal_mass_bins(probabilities, weights)
    return {
        "pairs": len(labels),
        **asdict(measure_error(probabilities, labels, weights)),
        "perfect_at_most": error_of_perfect(probabilities, weights, numbers).high,
    }


def _embed(folder: Path, vectors: Path | None, checkpoint: Checkpoint) -> EmbeddedCorpus:
    if vectors is not None:
        return read_embedded_corpus(vectors / f"{folder.name}.npz")
    encoder = OnnxEncoder(checkpoint)
    return embed_corpus(folder, BlockTokenizer(checkpoint), encoder, SilentObserver())


if __name__ == "__main__":
    typer.run(main)

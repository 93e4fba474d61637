"""The benchmark of pretraining as tables and a picture; needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import markdown_table
from benchmarks.pretraining.plan import ERNIE_DOC, PRETRAINED, RANDOM, SMITH
from evaluation.metrics import AUC, NDCG

NAMES = {SMITH: "SMITH (WP+SP)", ERNIE_DOC: "ERNIE-Doc (words and order)"}
_MEASURES = (NDCG, "recall@100")  # of the test queries
_PARTS = {"words": "masked words", "blocks": "masked blocks", "order": "order of chunks"}


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown: pretraining, then fine-tuned models."""
    results, size = record["results"], record["settings"]["size"]
    first = next(iter(results.values()))
    return "\n\n".join(
        [
            "Pretraining from random weights: losses (nats) of held-out documents with fixed masks",
            _pretraining(results),
            f"Fine-tuned on links, {len(size['seeds'])} seeds: "
            f"{first['pairs']['pairs']} test pairs, {first['retrieval']['queries']} test queries "
            f"over {first['documents_searched']} documents that no training saw; 95 % intervals; "
            "p of the paired test against random",
            _tuned(results),
            f"{first['tuning'][RANDOM]['figure']} before and after fine-tuning, by seed",
            _validation(results),
        ]
    )


def scale_table(record: dict[str, Any]) -> str:
    """Format the record of `benchmarks.pretraining.scale` as Markdown."""
    header = ["documents", "MiB of text", "MiB on disk", "memory rises by MiB", "bytes a document"]
    header += ["peak MiB", "seconds to the first step"]
    rows = [
        [
            f"{int(documents):,}",
            one["text_bytes"] / 2**20,
            one["disk_bytes"] / 2**20,
            one["memory_bytes"] / 2**20,
            one["memory_bytes"] / int(documents),
            one["peak_bytes"] / 2**20,
            one["seconds_to_first_step"],
        ]
        for documents, one in record["results"].items()
    ]
    return markdown_table(header, rows)


def plot(record: dict[str, Any], path: Path) -> None:
    """Draw the losses of pretraining by step: of training as lines, of held-out documents as dots.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    from benchmarks.plots import plot_losses

    panels = {}
    for name, one in record["results"].items():
        curves = one["pretraining"]
        panels[NAMES[name]] = {
            label: tuple(
                [(point["step"], point[part]) for point in curves[kind] if part in point]
                for kind in ("training", "validation")
            )
            for part, label in _PARTS.items()
            if part in curves["best"]
        }
    plot_losses(path, panels)


def _pretraining(results: Mapping[str, Any]) -> str:
    header = ["", "steps", "documents", "CPU minutes", "best step", "loss", *_PARTS.values()]
    rows = []
    for name, one in results.items():
        run = one["pretraining"]
        ends = [
            f"{run['before'][part]:.2f} to {run['best'][part]:.2f}" if part in run["best"] else ""
            for part in ("loss", *_PARTS)
        ]
        minutes = f"{run['cpu_seconds'] / 60:.0f}"
        rows.append([NAMES[name], run["steps"], run["documents"], minutes, run["best_step"], *ends])
    return markdown_table(header, rows)


def _tuned(results: Mapping[str, Any]) -> str:
    header = ["", "begins", "CPU seconds", "accuracy", "p", AUC, "of seeds"]
    for measure in _MEASURES:
        header += [measure, "of seeds", "p"]
    rows = []
    for name, one in results.items():
        for begins in (RANDOM, PRETRAINED):
            pairs, queries = (one[task]["systems"][begins] for task in ("pairs", "retrieval"))
            seconds = one["tuning"][begins]["cpu_seconds"]
            row = [NAMES[name], begins, f"{sum(seconds) / len(seconds):.0f}"]
            row += [_estimate(pairs, "accuracy"), _p(pairs, "accuracy")]
            row += [_estimate(pairs, AUC), _seeds(pairs, AUC)]
            for measure in _MEASURES:
                row += [_estimate(queries, measure), _seeds(queries, measure), _p(queries, measure)]
            rows.append(row)
    return markdown_table(header, rows)


def _validation(results: Mapping[str, Any]) -> str:
    rows = []
    for name, one in results.items():
        for begins, run in one["tuning"].items():
            ends = zip(run["before"], run["after"], strict=True)
            cells = [f"{before:.3f} to {after:.3f}" for before, after in ends]
            rows.append([NAMES[name], begins, *cells])
    seeds = [f"seed {number}" for number in range(len(rows[0]) - 2)]
    return markdown_table(["", "begins", *seeds], rows)


def _estimate(figures: Mapping[str, Any], name: str) -> str:
    one = figures[name]
    return f"{one['value']:.3f} ({one['low']:.3f}-{one['high']:.3f})"


def _seeds(figures: Mapping[str, Any], name: str) -> str:
    return ", ".join(f"{one[name]:.3f}" for one in figures.get("by_seed", ()))


def _p(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures['against'][name]['p']:.4f}" if "against" in figures else ""

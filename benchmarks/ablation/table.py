"""The ablations as tables and as the paper's Figure 4; needs no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablation.cells import mean_over_corpora
from benchmarks.ablation.data import NDCG, PAIR_MEASURES
from benchmarks.common import markdown_table
from evaluation.plots import plot_by_tokens_read

_LENGTH = "length, "
# Accuracy on Wiki65K, for orientation: other data, and 57 hours of a TPU before fine-tuning.
PAPER = {
    "NP": 0.9054,
    "WP": 0.9492,
    "WP+SP": 0.9585,
    "normal": 0.9594,
    "sum_concat": 0.9192,
    "mean_concat": 0.9221,
    "attention": 0.9431,
}


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown: a table for each ablation, models by figures."""
    return "\n\n".join(
        f"{part} (validation; p against {one['reference']})\n\n{_table(one, record['settings'])}"
        for part, one in record["results"].items()
    )


def plot(record: dict[str, Any], path: Path) -> None:
    """Draw quality by tokens read, where the lengths were measured (the paper's Figure 4)."""
    read = record["settings"]["tokens_read"]
    curves = {
        part.removeprefix(_LENGTH): {
            read[row]: mean_over_corpora(figures, NDCG) for row, figures in one["rows"].items()
        }
        for part, one in record["results"].items()
        if part.startswith(_LENGTH)
    }
    if curves:
        plot_by_tokens_read(path, curves, f"{NDCG}, validation queries")


def _table(one: dict[str, Any], settings: dict[str, Any]) -> str:
    corpora = settings["corpora"]
    header = ["", "seeds", *(f"{NDCG} {name}" for name in corpora), "mean", "of seeds", "p"]
    header += [*PAIR_MEASURES, "CPU seconds", "accuracy in the paper"]
    return markdown_table(
        header, [_row(name, figures, corpora) for name, figures in one["rows"].items()]
    )


def _row(name: str, figures: dict[str, Any], corpora: Sequence[str]) -> list[object]:
    seeds = figures["by_seed"]
    against = figures["against"].get(NDCG)
    return [
        name,
        len(seeds),
        *(f"{figures['corpora'][corpus][NDCG]:.3f}" for corpus in corpora),
        f"{mean_over_corpora(figures, NDCG):.3f}",
        f"{min(seeds):.3f}-{max(seeds):.3f}",
        f"{against['p']:.4f}" if against else "",
        *(f"{mean_over_corpora(figures, measure):.3f}" for measure in PAIR_MEASURES),
        round(figures["cpu_seconds"]),
        PAPER.get(name, ""),
    ]

"""The tables of the Match-Ignition benchmark; needs no torch."""

from typing import Any

from benchmarks.common import markdown_table

_NAMES = {"AUC": "AUC", "accuracy": "accuracy", "F1": "F1", "ms_per_batch": "ms a batch"}


def table(record: dict[str, Any]) -> str:
    """Format the three tables."""
    corpora = record["results"]
    names = {
        "5": "Both filters, each alone, neither",
        "6": "Share of words dropped in each layer",
        "7": "What says which words matter (20 % dropped)",
    }
    laid_out = []
    for number, title in names.items():
        cells = [cell for cell in next(iter(corpora.values())) if cell.startswith(number)]
        rows = [
            [cell[2:], *(value for one in corpora.values() for value in _values(one[cell]))]
            for cell in cells
        ]
        header = [
            "",
            *(f"{name} {_NAMES[key]}" for name in corpora for key in _keys(corpora[name])),
        ]
        laid_out.append(f"{title}\n\n{markdown_table(header, rows)}")
    return "\n\n".join(laid_out)


def _keys(cells: dict[str, dict[str, float]]) -> list[str]:
    """Return what was measured of a corpus: accuracy and F1 take validation pairs."""
    return [key for key in _NAMES if key in next(iter(cells.values()))]


def _values(cell: dict[str, float]) -> list[str]:
    return [
        f"{cell[key]:.0f}" if key == "ms_per_batch" else f"{cell[key]:.3f}"
        for key in _NAMES
        if key in cell
    ]

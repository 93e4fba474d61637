"""The tables of the Match-Ignition benchmark; needs no torch."""

from typing import Any

from benchmarks.common import markdown_table


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
        header = ["", *(f"{name} {what}" for name in corpora for what in ("AUC", "ms a batch"))]
        laid_out.append(f"{title}\n\n{markdown_table(header, rows)}")
    return "\n\n".join(laid_out)


def _values(cell: dict[str, float]) -> tuple[str, str]:
    return f"{cell['AUC']:.3f}", f"{cell['ms_per_batch']:.0f}"

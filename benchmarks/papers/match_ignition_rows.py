"""The rows of tables 5 to 7 of the Match-Ignition paper, and their table; needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import markdown_table

BENCHMARK = "match-ignition-trained"


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the paper.

    Attributes:
        name: in the table.
        tables: of the paper that have it.
        reported: accuracy and F1 of CNSE, then of CNSS, in percent.
        pair: changes to `[pair]` of the recipe of its start.
        model: changes to `[model]`.
    """

    name: str
    tables: str
    reported: tuple[float, float, float, float]
    pair: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


ROWS: Mapping[str, Row] = {
    "both": Row("both filters, 10 %, by PageRank", "2-7", (86.32, 84.55, 91.28, 91.39)),
    "sentences": Row(
        "sentence filter", "5, 6", (84.11, 82.17, 91.04, 91.07), model={"reduction": 0.0}
    ),
    "words": Row("word filter", "5", (80.31, 76.39, 91.10, 91.18), pair={"filtered": False}),
    "neither": Row(
        "neither filter",
        "2, 5",
        (81.30, 79.20, 86.64, 87.08),
        pair={"filtered": False},
        model={"reduction": 0.0},
    ),
    "share-5": Row("5 % of words", "6", (85.68, 83.65, 90.70, 90.73), model={"reduction": 0.05}),
    "share-20": Row("20 % of words", "6", (82.55, 79.66, 90.25, 90.21), model={"reduction": 0.2}),
    "random": Row(
        "10 %, at random", "7", (80.38, 79.19, 87.68, 88.20), model={"importance": "random"}
    ),
    "norm": Row("10 %, by norm", "7", (80.54, 78.15, 84.92, 85.03), model={"importance": "norm"}),
    "attention": Row(
        "10 %, by attention", "7", (85.52, 83.34, 89.91, 89.88), model={"importance": "attention"}
    ),
}


def table(record: Mapping[str, Any]) -> str:
    """Format the record of trained rows, with what the paper reports of its data beside them."""
    header = ["", "tables", "accuracy", "F1", "AUC", "ms a batch"]
    header += [f"{what} in the paper, {data}" for data in ("CNSE", "CNSS") for what in _FIGURES]
    rows = []
    for key, cell in record["results"].items():
        row = ROWS[key]
        figures = [f"{cell[name]:.3f}" for name in (*_FIGURES, "AUC")]
        said = [f"{percent / 100:.4f}" for percent in row.reported]
        rows.append([row.name, row.tables, *figures, f"{cell['ms_per_batch']:.0f}", *said])
    settings = record["settings"]
    title = f"Each row trained on {settings['corpus']}; {settings['pairs']} test pairs"
    return f"{title}\n\n{markdown_table(header, rows)}"


_FIGURES = ("accuracy", "F1")

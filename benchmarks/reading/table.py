"""The record of a study of reading as tables and as a plot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table
from benchmarks.plots import plot_by_share

SHOWN = ("vector", "semantic", "unaligned hybrid", "hybrid")


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown: what all blocks reach, and what is lost by reading less."""
    return "\n\n".join([_whole(record), *_losses(record)])


def _whole(record: dict[str, Any]) -> str:
    rows = []
    for name, one in record["results"].items():
        figures = one["all blocks"]
        cells = [f"{figures[system]['value']:.3f}" for system in ("lexical", *SHOWN)]
        rows.append([name, one["documents"], f"{one['tokens']:,}", one["queries"], *cells])
    header = ["", "documents", "tokens", "queries", "lexical", *SHOWN]
    split = record["settings"]["split"]
    return f"nDCG@10 of {split} queries, all blocks read\n\n{markdown_table(header, rows)}"


def _losses(record: dict[str, Any]) -> Iterator[str]:
    results = record["results"]
    first = next(iter(results.values()))
    for system in SHOWN:
        rows = []
        for number, one in enumerate(first["reading"]):
            found = [of_corpus["reading"][number] for of_corpus in results.values()]
            losses = [each["loss"][system] for each in found]
            mean = np.mean([each["difference"] for each in losses])
            tokens = np.mean([each["tokens"] for each in found])
            cells = [_cell(each) for each in losses]
            rows.append([one["chooser"], one["share"], f"{tokens:.2f}", *cells, f"{mean:+.4f}"])
        header = ["blocks chosen by", "share", "tokens", *results, "mean"]
        yield (
            f"{system}: difference of nDCG@10 to reading all blocks (95 % interval; p)\n\n"
            f"{markdown_table(header, rows)}"
        )


def _cell(loss: dict[str, float]) -> str:
    return (
        f"{loss['difference']:+.4f} ({loss['low']:+.4f} to {loss['high']:+.4f}) p {loss['p']:.4f}"
    )


def plot(record: dict[str, Any], path: Path) -> None:
    """Plot the mean difference over the corpora by the share read, of semantic and hybrid mode."""
    results = list(record["results"].values())
    panels: dict[str, dict[str, dict[float, float]]] = {}
    for system in ("semantic", "hybrid"):
        curves: dict[str, dict[float, float]] = {}
        for number, one in enumerate(results[0]["reading"]):
            losses = [of["reading"][number]["loss"][system]["difference"] for of in results]
            curve = curves.setdefault(one["chooser"], {1.0: 0.0})
            curve[one["share"]] = float(np.mean(losses))
        panels[system] = curves
    plot_by_share(path, panels, "difference of nDCG@10")

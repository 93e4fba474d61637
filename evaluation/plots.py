"""Plots of an evaluation as SVG: the same figures give the same bytes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.significance import Estimate
from index.optional_dependencies import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)  # inches
_SALT = "longmatch"  # without it, matplotlib makes the ids of an SVG at random


def plot_by_tokens_read(
    path: Path, curves: Mapping[str, Mapping[int, float]], measure: str
) -> None:
    """Plot quality by the tokens read of each document (SMITH, figure 4)."""
    figure = new_figure()
    axes = figure.subplots()
    for name, curve in curves.items():
        tokens = sorted(curve)
        axes.plot(tokens, [curve[number] for number in tokens], marker="o", label=name)
    axes.set_xscale("log", base=2)
    ticks = sorted({number for curve in curves.values() for number in curve})
    axes.set_xticks(ticks, [f"{number:,}" for number in ticks], rotation=45)
    axes.minorticks_off()
    axes.set(xlabel="tokens read of each document", ylabel=measure)
    save_figure(figure, path)


def plot_by_length(path: Path, systems: Mapping[str, Mapping[str, Estimate]], measure: str) -> None:
    """Plot quality by length of the document, with intervals."""
    figure = new_figure()
    axes = figure.subplots()
    buckets = list(dict.fromkeys(bucket for estimates in systems.values() for bucket in estimates))
    width = 0.8 / max(len(systems), 1)
    for number, (name, estimates) in enumerate(systems.items()):
        places = [buckets.index(bucket) + (number + 0.5) * width - 0.4 for bucket in estimates]
        values = [estimate.value for estimate in estimates.values()]
        below = [max(estimate.value - estimate.low, 0.0) for estimate in estimates.values()]
        above = [max(estimate.high - estimate.value, 0.0) for estimate in estimates.values()]
        axes.bar(places, values, width, yerr=(below, above), label=name, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(buckets)), buckets)
    axes.set(xlabel="tokens of the document", ylabel=measure)
    save_figure(figure, path)


def new_figure() -> "Figure":
    """Return an empty figure."""
    require_extra("evaluate", "a plot", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=_SIZE, layout="constrained")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure with a legend as SVG."""
    import matplotlib as mpl

    figure.axes[0].legend(fontsize="small")
    with mpl.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})

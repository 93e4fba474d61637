"""A plot of quality as SVG: the same figures give the same bytes."""

from collections.abc import Mapping
from pathlib import Path

from index.optional_dependencies import require_extra

_SIZE = (6.4, 4.0)  # inches
_SALT = "longmatch"  # without it, matplotlib makes the ids of an SVG at random


def plot_by_tokens_read(
    path: Path, curves: Mapping[str, Mapping[int, float]], measure: str
) -> None:
    """Plot quality by the tokens read of each document (SMITH, figure 4)."""
    require_extra("evaluate", "a plot", "matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        tokens = sorted(curve)
        axes.plot(tokens, [curve[number] for number in tokens], marker="o", label=name)
    axes.set_xscale("log", base=2)
    ticks = sorted({number for curve in curves.values() for number in curve})
    axes.set_xticks(ticks, [f"{number:,}" for number in ticks], rotation=45)
    axes.minorticks_off()
    axes.set(xlabel="tokens read of each document", ylabel=measure)
    axes.legend(fontsize="small")
    with mpl.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})

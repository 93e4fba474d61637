"""Plots of an evaluation as SVG: the same figures give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.calibration_error import ReliabilityBin
from evaluation.significance import Estimate
from index.extras import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)  # inches
_SALT = "longmatch"  # without it, matplotlib makes the ids of an SVG at random


def plot_by_tokens_read(
    path: Path, curves: Mapping[str, Mapping[int, float]], measure: str
) -> None:
    """Plot quality by the tokens read of each document (SMITH, figure 4).

    Args:
        path: of the SVG file.
        curves: for each system, its figure at each number of tokens.
        measure: name of the figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    figure = _figure()
    axes = figure.subplots()
    for name, curve in curves.items():
        tokens = sorted(curve)
        axes.plot(tokens, [curve[number] for number in tokens], marker="o", label=name)
    axes.set_xscale("log", base=2)
    ticks = sorted({number for curve in curves.values() for number in curve})
    axes.set_xticks(ticks, [f"{number:,}" for number in ticks], rotation=45)
    axes.minorticks_off()
    axes.set(xlabel="tokens read of each document", ylabel=measure)
    _finish(figure, path)


def plot_by_share(
    path: Path, panels: Mapping[str, Mapping[str, Mapping[float, float]]], measure: str
) -> None:
    """Plot quality by the share of each document that is read.

    Args:
        path: of the SVG file.
        panels: by title, for each curve its figure at each share.
        measure: name of the figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    figure = _figure()
    for axes, (title, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, curve in curves.items():
            shares = sorted(curve)
            values = [curve[share] for share in shares]
            axes.plot(shares, values, marker="o", markersize=3, linewidth=0.8, label=name)
        axes.set(title=title, xlabel="share of the blocks", ylabel=measure)
    _finish(figure, path)


def plot_by_length(
    path: Path,
    systems: Mapping[str, Mapping[str, Estimate]],
    measure: str,
) -> None:
    """Plot quality by length of the document, with intervals.

    Args:
        path: of the SVG file.
        systems: for each system, the estimate in each bucket, in order.
        measure: name of the figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    figure = _figure()
    axes = figure.subplots()
    buckets = list(dict.fromkeys(bucket for one in systems.values() for bucket in one))
    width = 0.8 / max(len(systems), 1)
    for number, (name, one) in enumerate(systems.items()):
        places = [buckets.index(bucket) + (number + 0.5) * width - 0.4 for bucket in one]
        values = [estimate.value for estimate in one.values()]
        below = [max(estimate.value - estimate.low, 0.0) for estimate in one.values()]
        above = [max(estimate.high - estimate.value, 0.0) for estimate in one.values()]
        axes.bar(places, values, width, yerr=(below, above), label=name, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(buckets)), buckets)
    axes.set(xlabel="tokens of the document", ylabel=measure)
    _finish(figure, path)


def plot_reliability(path: Path, curves: Mapping[str, Sequence[ReliabilityBin]]) -> None:
    """Plot the share of matches by predicted probability; below it, the number of pairs.

    Args:
        path: of the SVG file.
        curves: for each calibration, its bins.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    figure = _figure()
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 1], [0, 1], color="grey", linewidth=0.8, label="perfect")
    for name, bins in curves.items():
        filled = [one for one in bins if one.pairs]
        stated = [one.probability for one in filled]
        upper.plot(stated, [one.matches for one in filled], marker="o", label=name)
        lower.plot(stated, [one.pairs for one in filled], marker="o")
    upper.set(ylabel="share of matches", xlim=(0, 1), ylim=(0, 1))
    lower.set(xlabel="predicted probability", ylabel="pairs")
    lower.set_ylim(bottom=0)
    _finish(figure, path)


def _figure() -> "Figure":
    require_extra("evaluate", "a plot", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=_SIZE, layout="constrained")


def _finish(figure: "Figure", path: Path) -> None:
    import matplotlib as mpl

    figure.axes[0].legend(fontsize="small")
    with mpl.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})

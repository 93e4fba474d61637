"""Plots of benchmarks as SVG: the same figures give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.fitting.calibration import ReliabilityBin
from evaluation.plots import new_figure, save_figure

Point = tuple[float, float]


def plot_by_share(
    path: Path, panels: Mapping[str, Mapping[str, Mapping[float, float]]], measure: str
) -> None:
    """Plot quality by the share of each document that is read.

    Args:
        path: of the SVG file.
        panels: by title, for each curve its figure at each share.
        measure: name of the figure.
    """
    figure = new_figure()
    for axes, (title, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, curve in curves.items():
            shares = sorted(curve)
            values = [curve[share] for share in shares]
            axes.plot(shares, values, marker="o", markersize=3, linewidth=0.8, label=name)
        axes.set(title=title, xlabel="share of the blocks", ylabel=measure)
    save_figure(figure, path)


def plot_reliability(path: Path, curves: Mapping[str, Sequence[ReliabilityBin]]) -> None:
    """Plot the share of matches by predicted probability; below it, the number of pairs.

    Args:
        path: of the SVG file.
        curves: for each calibration, its bins.
    """
    figure = new_figure()
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
    save_figure(figure, path)


def plot_losses(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[Sequence[Point], Sequence[Point]]]],
) -> None:
    """Plot losses of training by step as lines, and of held-out documents as dots.

    Args:
        path: of the SVG file.
        panels: by title, for each loss its points (step, loss) in training and in validation.
    """
    figure = new_figure()
    for axes, (title, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, (training, validation) in curves.items():
            (line,) = axes.plot(*zip(*training, strict=True), linewidth=0.8, label=name)
            axes.plot(*zip(*validation, strict=True), "o", markersize=3, color=line.get_color())
        axes.set(title=title, xlabel="step", ylabel="loss", ylim=(0, None))
        axes.legend(fontsize="small")
    save_figure(figure, path)

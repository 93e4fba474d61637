"""What the command line shows of a training run: a bar on a terminal, lines in a log."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from service.console import SECONDS_BETWEEN_LINES


class StepObserver(Protocol):
    """Hears of a training run (`encoder.training.observer`, which is not there when serving)."""

    def started(self, step: int, steps: int) -> None:
        """Hear that a run begins, or goes on after a step."""
        ...

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Hear that a step is done."""
        ...

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Hear the figure of a validation."""
        ...


@contextmanager
def observing_training(console: Console) -> Iterator[StepObserver]:
    """Show a training run on a console for as long as it lasts."""
    if console.is_terminal:
        with _progress(console) as progress:
            yield BarStepObserver(console, progress)
    else:
        yield LineStepObserver(console)


class LineStepObserver:
    """Prints a line for each validation, and now and then for a step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = time.monotonic()
        self._steps = 0

    def started(self, step: int, steps: int) -> None:
        """Say where the run begins."""
        self._steps = steps
        begun = f"going on after step {step} of {steps}" if step else f"training {steps} steps"
        self._console.print(begun)

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Say how far the run is, unless that was said a moment ago."""
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self._console.print(f"step {step}/{self._steps}, loss {figures['loss']:.4f}")

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Say what validation measured."""
        self._console.print(validation_line(step, figure, best=best))


class BarStepObserver:
    """Moves a bar with the loss, and prints a line above it for each validation."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task("training", total=None, loss="")

    def started(self, step: int, steps: int) -> None:
        """Set the bar."""
        self._progress.update(self._task, total=steps, completed=step)

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step, loss=f"loss {figures['loss']:.4f}")

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Say what validation measured."""
        self._console.print(validation_line(step, figure, best=best))


def validation_line(step: int, figure: float, *, best: bool) -> str:
    """Say in a line what a validation measured."""
    return f"step {step}: validation {figure:.4f}{', the best so far' if best else ''}"


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
    )

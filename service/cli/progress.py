"""What the command line shows while it works: a bar on a terminal, a line now and then in a log."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from index.document import SkippedInput
from index.progress import Progress

REFUSALS_SHOWN = 20
SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def show_progress(console: Console) -> Iterator[Progress]:
    """Show the progress of a job on a console for as long as it runs."""
    refusals = Refusals(console)
    if console.is_terminal:
        with _progress(console) as progress:
            yield BarProgress(progress, refusals)
    else:
        yield LineProgress(console, refusals)
    refusals.close()


class Refusals:
    """Prints what was refused: the first one by one, the others counted."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._count = 0

    def tell(self, refused: SkippedInput) -> None:
        """Print one refusal, unless there were many."""
        self._count += 1
        if self._count <= REFUSALS_SHOWN:
            reason = printable(f"{refused.where}: {refused.reason}")
            self._console.print(Text.assemble(("refused ", "yellow"), reason))

    def close(self) -> None:
        """Say how many were not shown."""
        if self._count > REFUSALS_SHOWN:
            self._console.print(f"refused {self._count - REFUSALS_SHOWN} more")


class BarProgress:
    """Draws a bar for each step, with what is done, the rate and the time left."""

    def __init__(self, progress: RichProgress, refusals: Refusals) -> None:
        self._progress = progress
        self._rate = Rate("documents")
        self.skipped = refusals.tell

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """Open the bar of a step."""
        self._rate = Rate(unit)
        self._task = self._progress.add_task(step, total=total, unit=unit, rate=str(self._rate))

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        """Move the bar."""
        self._rate.add(count, tokens)
        self._progress.update(self._task, advance=count, rate=str(self._rate))


class LineProgress:
    """Prints a line when a step begins and now and then while it lasts."""

    def __init__(self, console: Console, refusals: Refusals) -> None:
        self._console = console
        self._rate = Rate("documents")
        self._said = time.monotonic()
        self.skipped = refusals.tell

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """Say which step begins."""
        self._step, self._total, self._unit = step, total, unit
        self._done = 0
        self._rate = Rate(unit)
        self._console.print(step if total is None else f"{step}: {total} {unit}")

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        """Say how far the step is, unless that was said a moment ago."""
        self._done += count
        self._rate.add(count, tokens)
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            done = f"{self._done}/{self._total}" if self._total is not None else f"{self._done}"
            self._console.print(f"{self._step}: {done} {self._unit}, {self._rate}")


class Rate:
    """What a step does in a second, since it began: tokens where it reports some, or its unit."""

    def __init__(self, unit: str) -> None:
        self._started = time.monotonic()
        self._unit = unit
        self._count = 0
        self._tokens = 0

    def add(self, count: int, tokens: int) -> None:
        """Count what was done."""
        self._count += count
        self._tokens += tokens

    def __str__(self) -> str:
        done, unit = (self._tokens, "tokens") if self._tokens else (self._count, self._unit)
        return f"{done / max(time.monotonic() - self._started, 1e-3):,.0f} {unit}/s"


def printable(text: str) -> str:
    """Return text without the control characters that would move the cursor of a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _progress(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}, {task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
    )


class StepProgress(Protocol):
    """Hears of a training run (`training.progress`, which is not there when serving)."""

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
def show_training(console: Console) -> Iterator[StepProgress]:
    """Show a training run on a console for as long as it lasts."""
    if console.is_terminal:
        with _training_progress(console) as progress:
            yield BarStepProgress(console, progress)
    else:
        yield LineStepProgress(console)


class LineStepProgress:
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


class BarStepProgress:
    """Moves a bar with the loss, and prints a line above it for each validation."""

    def __init__(self, console: Console, progress: RichProgress) -> None:
        self._console = console
        self._training_progress = progress
        self._task = progress.add_task("training", total=None, loss="")

    def started(self, step: int, steps: int) -> None:
        """Set the bar."""
        self._training_progress.update(self._task, total=steps, completed=step)

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Move the bar."""
        self._training_progress.update(
            self._task, completed=step, loss=f"loss {figures['loss']:.4f}"
        )

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Say what validation measured."""
        self._console.print(validation_line(step, figure, best=best))


def validation_line(step: int, figure: float, *, best: bool) -> str:
    """Say in a line what a validation measured."""
    return f"step {step}: validation {figure:.4f}{', the best so far' if best else ''}"


def _training_progress(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
    )

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
    """Draws a bar for each step, with documents, tokens a second and time left."""

    def __init__(self, progress: RichProgress, refusals: Refusals) -> None:
        self._progress = progress
        self._rate = Rate()
        self.refused = refusals.tell

    def started(self, step: str, total: int | None) -> None:
        """Open the bar of a step."""
        self._rate = Rate()
        self._task = self._progress.add_task(step, total=total, rate="")

    def advanced(self, *, documents: int, tokens: int) -> None:
        """Move the bar."""
        self._rate.add(tokens)
        self._progress.update(self._task, advance=documents, rate=str(self._rate))


class LineProgress:
    """Prints a line when a step begins and now and then while it lasts."""

    def __init__(self, console: Console, refusals: Refusals) -> None:
        self._console = console
        self._rate = Rate()
        self._said = time.monotonic()
        self.refused = refusals.tell

    def started(self, step: str, total: int | None) -> None:
        """Say which step begins."""
        self._step, self._total, self._done = step, total, 0
        self._rate = Rate()
        self._console.print(step if total is None else f"{step} {total} documents")

    def advanced(self, *, documents: int, tokens: int) -> None:
        """Say how far the step is, unless that was said a moment ago."""
        self._done += documents
        self._rate.add(tokens)
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self._console.print(f"{self._step} {self._done}/{self._total}, {self._rate}")


class Rate:
    """Tokens a second since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._tokens = 0

    def add(self, tokens: int) -> None:
        """Count more tokens."""
        self._tokens += tokens

    def __str__(self) -> str:
        return f"{self._tokens / max(time.monotonic() - self._started, 1e-3):,.0f} tokens/s"


def printable(text: str) -> str:
    """Return text without the control characters that would move the cursor of a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _progress(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
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

"""The progress of a command: a bar on a terminal, a line from time to time in a log."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from index.document import SkippedInput, printable
from index.progress import Progress
from training.progress import TrainingProgress

SKIPPED_SHOWN = 20
SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def show_progress(console: Console, report: Path | None = None) -> Iterator[Progress]:
    """Show the progress of a job on a console.

    Args:
        console: where it is shown.
        report: a file that gets all input that is skipped, as JSON Lines of `where` and `reason`;
            one of an earlier job is removed.
    """
    if report:
        report.unlink(missing_ok=True)
    with _open_bars(console) as bars:
        shown = JobProgress(console, bars, report)
        yield shown
    shown.print_rest()


@contextmanager
def show_training(console: Console) -> Iterator[TrainingProgress]:
    """Show the progress of a training run on a console."""
    with _open_bars(console) as bars:
        yield StepProgress(console, bars)


def _open_bars(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        disable=not console.is_terminal,
    )


class Meter:
    """Shows how far a step is.

    On a terminal by a bar, with its count, a figure and the time left. In a log by a line when the
    step begins, and then at most one every `SECONDS_BETWEEN_LINES`.
    """

    def __init__(self, console: Console, bars: RichProgress) -> None:
        self._console = console
        self._bars = bars
        self._printed = time.monotonic()

    def begin(self, step: str, total: int | None, unit: str, done: int = 0) -> None:
        """Show what begins, which counts `unit`, a plural, from `done` up to `total` if known."""
        self._step, self._total, self._unit = step, total, unit
        self._task = self._bars.add_task(step, total=total, completed=done, unit=unit, figures="")
        if self._bars.disable:
            resuming = f"resuming after {done} of " if done else ""
            self._console.print(step if total is None else f"{step}: {resuming}{total} {unit}")

    def update(self, done: int, figures: str) -> None:
        """Show how far the step is; in a log, unless a line was printed a moment ago."""
        self._bars.update(self._task, completed=done, figures=f", {figures}")
        if self._bars.disable and time.monotonic() - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            count = done if self._total is None else f"{done}/{self._total}"
            self._console.print(f"{self._step}: {count} {self._unit}, {figures}")


class JobProgress(Meter):
    """Shows the steps of a job with their rates (`index.progress`).

    It prints the first pieces of input that were skipped, and writes all to a file.
    """

    def __init__(self, console: Console, bars: RichProgress, report: Path | None) -> None:
        super().__init__(console, bars)
        self._report = report
        self._skipped = Counter[bool]()  # by whether something is lost

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """Begin a step."""
        self._began = time.monotonic()
        self._count, self._tokens = 0, 0
        self.begin(step, total, unit)

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        """Show what is done, and the rate: in tokens if the step reports any, else in its unit."""
        self._count += count
        self._tokens += tokens
        done, unit = (self._tokens, "tokens") if self._tokens else (self._count, self._unit)
        rate = done / max(time.monotonic() - self._began, 1e-3)
        # A corpus may grow while it is read, and a file with a lost part counts twice.
        shown = self._count if self._total is None else min(self._count, self._total)
        self.update(shown, f"{rate:,.0f} {unit}/s")

    def skipped(self, skipped: SkippedInput) -> None:
        """Print a piece of input, unless many were printed, and write it."""
        self._skipped[skipped.lost] += 1
        if self._skipped[skipped.lost] <= SKIPPED_SHOWN:
            reason = printable(f"{skipped.where}: {skipped.reason}")
            word = "skipped " if skipped.lost else "note: "
            self._console.print(Text.assemble((word, "yellow"), reason))
        if self._report:
            with self._report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(skipped), ensure_ascii=False) + "\n")

    def print_rest(self) -> None:
        """Print how much of the input was skipped and only counted, and where all of it is."""
        for lost, what in ((True, "skipped"), (False, "notes:")):
            if (more := self._skipped[lost] - SKIPPED_SHOWN) > 0:
                self._console.print(f"{what} {more} more")
        if self._skipped and self._report:
            self._console.print(f"all that was skipped: {printable(str(self._report))}")


class StepProgress(Meter, TrainingProgress):
    """Shows the steps of a training run with their loss, and a line for each validation."""

    def started(self, step: int, steps: int) -> None:
        """Begin the run, or resume it."""
        self.begin("training", steps, "steps", step)

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Show the step and its loss."""
        self.update(step, f"loss {figures['loss']:.4f}")

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Print the figure of a validation."""
        suffix = ", the best so far" if best else ""
        self._console.print(f"step {step}: validation {figure:.4f}{suffix}")

"""What the command line shows: progress bars, refused input, tables. All of it on stderr, but
results."""

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from index.corpus import RefusedInput

REFUSALS_SHOWN = 20


class ConsoleObserver:
    """Draws the progress of a job and tells what was refused; the first refusals one by one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._refused = 0
        self._tokens = 0
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
        )

    def __enter__(self) -> "ConsoleObserver":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        if self._refused > REFUSALS_SHOWN:
            self._console.print(f"refused {self._refused - REFUSALS_SHOWN} more")

    def refused(self, refused: RefusedInput) -> None:
        """Print the refusal, unless there were many."""
        self._refused += 1
        if self._refused <= REFUSALS_SHOWN:
            self._console.print(
                f"[yellow]refused[/] {escape(printable(f'{refused.where}: {refused.reason}'))}",
                soft_wrap=True,
            )

    def started(self, step: str, total: int | None) -> None:
        """Open a bar for the step."""
        self._tokens = 0
        self._task = self._progress.add_task(step, total=total, rate="")

    def advanced(self, *, documents: int, tokens: int) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._tokens += tokens
        task = next(task for task in self._progress.tasks if task.id == self._task)
        rate = f"{self._tokens / task.elapsed:,.0f} tokens/s" if task.elapsed else ""
        self._progress.update(self._task, advance=documents, rate=rate)


def printable(text: str) -> str:
    """Return text without the control characters that would move the cursor of a terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)

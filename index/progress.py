"""The progress of a long job: its steps, and the input that it skips."""

from typing import Protocol

from index.document import SkippedInput


class Progress(Protocol):
    """Is notified of the progress of a job; the command line draws a bar of it."""

    def skipped(self, skipped: SkippedInput) -> None:
        """A piece of input was left out."""
        ...

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """A step begins; it counts up to `total`, if that is known, in `unit`, a plural."""
        ...

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        """The step has done `count` more of its unit, and read or written so many tokens."""
        ...


class SilentProgress:
    """Ignores every notification."""

    def skipped(self, skipped: SkippedInput) -> None:
        """Ignore it."""

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """Ignore it."""

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        """Ignore it."""

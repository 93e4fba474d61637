"""How a long job tells whoever watches it what it does."""

from typing import Protocol

from index.document import SkippedInput


class Progress(Protocol):
    """Hears of the progress of a job; a command line draws a bar of it."""

    def refused(self, refused: SkippedInput) -> None:
        """Hear of a piece of input that was left out."""
        ...

    def started(self, step: str, total: int | None) -> None:
        """Hear that a step begins over `total` documents, if that is known."""
        ...

    def advanced(self, *, documents: int, tokens: int) -> None:
        """Hear how much more of the step is done."""
        ...


class SilentProgress:
    """Hears everything and says nothing."""

    def refused(self, refused: SkippedInput) -> None:
        """Ignore it."""

    def started(self, step: str, total: int | None) -> None:
        """Ignore it."""

    def advanced(self, *, documents: int, tokens: int) -> None:
        """Ignore it."""

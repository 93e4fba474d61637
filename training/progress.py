"""How a training run tells whoever watches it what it does."""

from collections.abc import Mapping
from typing import Protocol


class TrainingProgress(Protocol):
    """Hears of the progress of a run; a command line draws a bar of it."""

    def started(self, step: int, steps: int) -> None:
        """Hear that a run of `steps` begins after `step`: 0, or where it was left off."""
        ...

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Hear that a step is done: its losses, the norm of its gradient, its rate."""
        ...

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Hear the figure of a validation, and whether none was better."""
        ...


class SilentTrainingProgress:
    """Hears everything and says nothing."""

    def started(self, step: int, steps: int) -> None:
        """Ignore it."""

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """Ignore it."""

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """Ignore it."""

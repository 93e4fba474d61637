"""The interface by which a training run reports its progress."""

from collections.abc import Mapping


class TrainingProgress:
    """Is notified of the progress of a run, and ignores it; a command line shows it as a bar."""

    def started(self, step: int, steps: int) -> None:
        """A run of `steps` begins after `step`: 0, or the step from which it resumes."""

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        """A step is done: its losses, the norm of its gradient, its learning rate."""

    def validated(self, step: int, figure: float, *, best: bool) -> None:
        """A validation is done: its figure, and whether none was better."""

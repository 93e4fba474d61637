"""Errors of `training`.

* TrainingError
  * TrainingRecipeError   a recipe file is missing, or a field of it unknown, missing or wrong
  * ResumeError           the directory holds the state of another run, or an unreadable one
  * NotFiniteError        a loss, a gradient or a validation figure is not finite
"""

from encoder.errors import EncoderError


class TrainingError(EncoderError):
    """Base of every error that `training` raises deliberately."""


class TrainingRecipeError(TrainingError):
    """A recipe file cannot be followed."""


class ResumeError(TrainingError):
    """The state in a directory belongs to another run."""


class NotFiniteError(TrainingError):
    """A number that must be finite is not."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(
            f"step {step}: {what} is {value}; the last checkpoint is kept. Lower the learning"
            " rate, or look at the documents of this step"
        )
        self.step = step
        self.what = what

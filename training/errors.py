"""Errors of `training`."""

from encoder.errors import EncoderError


class TrainingError(EncoderError):
    """Base of every error that `training` raises deliberately."""


class TrainingRecipeError(TrainingError):
    """A recipe file is missing, or a field of it unknown, missing or wrong."""


class ResumeError(TrainingError):
    """The directory holds the state of another run, or an unreadable one."""


class NotFiniteError(TrainingError):
    """A loss, a gradient or a validation figure is not finite."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(
            f"step {step}: {what} is {value}; the last checkpoint is kept. Lower the learning"
            " rate, or look at the documents of this step"
        )
        self.step = step
        self.what = what

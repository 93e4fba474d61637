"""The last training whose generation was refused: it is not tried again before something changed.

A refusal is kept in the store, so that a restart does not train at once what was refused already.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from index.drift import Training
from index.sqlite_upkeep import REFUSED_TRAINING, Upkeep


@dataclass(frozen=True, slots=True)
class Attempt:
    """A training that was begun.

    Attributes:
        training: of the lists that it was to replace.
        changed: how far they had changed by then, `Drift.changed`.
        target: recall@10 that was asked for.
    """

    training: Training
    changed: float
    target: float

    def like(self, training: Training, target: float) -> bool:
        """Say whether an attempt with these lists and this target would be the same."""
        return (self.training, self.target) == (training, target)

    def keep(self, upkeep: Upkeep) -> None:
        """Keep it as the one that was refused.

        Raises:
            StoreError: the store cannot be written.
        """
        upkeep.write(REFUSED_TRAINING, asdict(self))


def read_refused(upkeep: Upkeep) -> Attempt | None:
    """Return the attempt that was last refused; None where none is known.

    Raises:
        StoreError: the store cannot be read.
    """
    kept = upkeep.read(REFUSED_TRAINING)
    try:
        training = Training(int(kept["training"]["sequence"]), int(kept["training"]["vectors"]))
        return Attempt(training, float(kept["changed"]), float(kept["target"]))
    except (KeyError, TypeError, ValueError):
        return None

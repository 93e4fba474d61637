"""Whether the lists of an index still suit its vectors: pure functions of what was counted."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from encoder.arrays import Int64
from index.sqlite.task_state import REJECTED_RETRAINING, MaintenanceState
from index.vectors.lists import choose_nlist

OUTGROWN_BY = 4


@dataclass(frozen=True, slots=True)
class Training:
    """What lists were trained for: the `vectors` that the store held at `sequence`."""

    sequence: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Drift:
    """How far an index is from the one that was trained.

    Attributes:
        imbalance: the mean time of a search by that with lists of equal size; 1 is the best.
        empty: share of the lists that have no vector.
        added: vectors added since training, by those it was trained for.
        removed: of those it was trained for, the share that is gone.
        nlist: how many lists there are.
        outgrown: it has `OUTGROWN_BY` times too few or too many lists.
    """

    imbalance: float
    empty: float
    added: float
    removed: float
    nlist: int
    outgrown: bool

    @property
    def changed(self) -> float:
        """What was added and removed since training, by what it was trained for."""
        return self.added + self.removed


@dataclass(frozen=True, slots=True)
class DriftLimits:
    """From where on lists are trained again.

    The first four are those of `Drift`. `changed` is the least change since training, or since the
    last attempt, before another attempt is worth its time: the lists of some corpora are uneven as
    soon as they are trained, and training them again would not help.
    """

    imbalance: float = 3.0
    empty: float = 0.4
    added: float = 1.0
    removed: float = 0.5
    changed: float = 0.1


def needs_training(nlist: int, count: int, choose: Callable[[int], int] = choose_nlist) -> bool:
    """Say whether `count` vectors have outgrown, or no longer fill, an index of `nlist` lists.

    Lists grow with their vectors, so nothing is wrong with an index that is a little off; at
    `OUTGROWN_BY` times too few or too many lists a query scans or compares needlessly much.
    `choose` is the number of lists that the engine would give so many vectors.
    """
    suitable = choose(count)
    return max(suitable, nlist) >= OUTGROWN_BY * min(suitable, nlist)


def measure_drift(
    sizes: Int64,
    training: Training,
    *,
    added: int,
    removed: int,
    choose: Callable[[int], int] = choose_nlist,
) -> Drift:
    """Measure how far an index has drifted.

    The imbalance is that of FAISS: nlist * sum(n^2) / sum(n)^2 over the list sizes n.

    Args:
        sizes: how many vectors each list has, Int64[nlist].
        training: what the lists were trained for.
        added: vectors that live and were added since.
        removed: vectors that existed then and are gone.
        choose: number of vectors -> number of lists that the engine would give them.
    """
    total = int(sizes.sum())
    squares = float(np.square(sizes, dtype=np.float64).sum())
    trained = max(training.vectors, 1)
    return Drift(
        imbalance=len(sizes) * squares / total**2 if total else 1.0,
        empty=float((sizes == 0).mean()) if total else 0.0,
        added=added / trained,
        removed=removed / trained,
        nlist=len(sizes),
        outgrown=needs_training(len(sizes), total, choose),
    )


def drift_reasons(
    drift: Drift, limits: DriftLimits, *, attempted_at: float = 0.0
) -> tuple[str, ...]:
    """Return why the lists should be trained again, each in a few words; none where they suit.

    Args:
        drift: as measured.
        limits: from where on.
        attempted_at: the `changed` of the last attempt on the same lists.
    """
    if drift.changed < attempted_at + limits.changed:
        return ()
    reasons = ["too few or too many lists"] if drift.outgrown else []
    if drift.nlist == 1:  # one list suits any vectors, while they are few
        return tuple(reasons)
    over = {
        "imbalance": (drift.imbalance, limits.imbalance),
        "empty lists": (drift.empty, limits.empty),
        "growth": (drift.added, limits.added),
        "deletes": (drift.removed, limits.removed),
    }
    reasons += [f"{name} {value:.2f}" for name, (value, limit) in over.items() if value > limit]
    return tuple(reasons)


@dataclass(frozen=True, slots=True)
class RejectedRetraining:
    """A training that was begun.

    Attributes:
        training: of the lists that it was to replace.
        changed: how far they had changed by then, `Drift.changed`.
        target: recall@10 that was asked for.
    """

    training: Training
    changed: float
    target: float

    def matches(self, training: Training, target: float) -> bool:
        """Say whether an attempt with these lists and this target would be the same."""
        return (self.training, self.target) == (training, target)

    def write(self, maintenance: MaintenanceState) -> None:
        """Keep it as the one that was refused.

        Raises:
            StoreError: the store cannot be written.
        """
        maintenance.write(REJECTED_RETRAINING, asdict(self))


def read_rejected_retraining(maintenance: MaintenanceState) -> RejectedRetraining | None:
    """Return the attempt that was last refused; None where none is known.

    Raises:
        StoreError: the store cannot be read.
    """
    kept = maintenance.read(REJECTED_RETRAINING)
    try:
        training = Training(int(kept["training"]["sequence"]), int(kept["training"]["vectors"]))
        return RejectedRetraining(training, float(kept["changed"]), float(kept["target"]))
    except (KeyError, TypeError, ValueError):
        return None

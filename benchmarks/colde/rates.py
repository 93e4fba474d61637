"""The learning rate of each model and loss of the CoLDE benchmark: the best on validation pairs.

Models are compared at their own best rates, so that a difference between them is not one between
rates that somebody chose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.colde.models import Planned
from benchmarks.colde.runs import Bench, is_kept, validation_auc


@dataclass(frozen=True, slots=True)
class Tuned:
    """One row of the tables at its best rate.

    Attributes:
        models: one for each seed whose models of all rates are trained, at the best rate.
        validation: AUC of the validation pairs by rate, the mean over corpora and these seeds;
            empty of a row that is not trained.
    """

    models: tuple[Planned, ...]
    validation: Mapping[float, float]

    @property
    def rate(self) -> float:
        """The best rate; of several, the lowest."""
        return self.models[0].rate

    def record(self) -> dict[str, Any]:
        """Return what a record says of the choice."""
        return {
            "rate": self.rate,
            "validation_auc": {f"{rate:g}": auc for rate, auc in self.validation.items()},
        }


def tune(bench: Bench, grids: Sequence[Mapping[str, Sequence[Planned]]]) -> dict[str, Tuned]:
    """Choose the rate of each row.

    Args:
        bench: that keeps the models.
        grids: for each seed and row, a model for each rate.

    Returns:
        The rows that have a seed whose models of all rates are trained.
    """
    tuned = {}
    for row in dict.fromkeys(row for grid in grids for row in grid):
        complete = [
            grid[row] for grid in grids if row in grid and all(is_kept(bench, m) for m in grid[row])
        ]
        if not complete:
            continue
        if len(complete[0]) == 1:  # nothing to choose from
            tuned[row] = Tuned(tuple(models[0] for models in complete), {})
            continue
        aucs = np.mean([[validation_auc(bench, m) for m in models] for models in complete], axis=0)
        best = int(np.argmax(aucs))
        rates = [model.rate for model in complete[0]]
        validation = dict(zip(rates, aucs.tolist(), strict=True))
        tuned[row] = Tuned(tuple(models[best] for models in complete), validation)
    return tuned

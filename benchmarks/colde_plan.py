"""Which models the CoLDE benchmark trains, all over the same frozen block vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.colde_models import Planned

MEAN = "mean of the blocks, untrained"
SMITH = "SMITH, pairs"
COLDE = "CoLDE, contrastive"
SMITH_MEAN = "SMITH begun as the mean, pairs"
COLDE_MEAN = "CoLDE begun as the mean, contrastive"
BOTH: Mapping[str, tuple[str, str]] = {  # the mean of two models' cosines
    "both": (SMITH, COLDE),
    "both, begun as the mean": (SMITH_MEAN, COLDE_MEAN),
}
REFERENCE = SMITH
IN_FIGURES = (SMITH, COLDE, SMITH_MEAN, COLDE_MEAN)

_SMITH = {"architecture": "smith", "combine": "normal"}
_COLDE = {"architecture": "colde"}
_AS_MEAN = {"begin_as_mean": True}
_SMITH_AS_MEAN = {"architecture": "smith", "combine": "attention", **_AS_MEAN}
_COLDE_AS_MEAN = {"architecture": "colde", "aggregate": "lstm_and_mean", **_AS_MEAN}
# Chosen on validation pairs: what begins as the mean is harmed by a high rate.
_RATE, _MEAN_RATE = 1e-3, 1e-4
_TEMPERATURE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the benchmark is; every model takes these steps over as many documents.

    Attributes:
        steps: of each model.
        documents: of a step.
        blocks: of a document that training reads, where the length is not what varies.
        lengths: in blocks, where it is.
    """

    steps: int = 80
    documents: int = 48
    blocks: int = 32
    lengths: tuple[int, ...] = (4, 8, 16, 32)


def plan_table(seed: int, size: Size) -> list[Planned]:
    """Plan the models of one seed; what is not trained comes with the first only."""
    pairs, contrastive, sections = "pairs", _contrastive(2), {"kind": "sections"}

    def planned(
        row: str, model: Mapping[str, Any], *objectives: Any, rate: float = _RATE
    ) -> Planned:
        return Planned(row, seed, model, _tuning(size, size.blocks, rate, *objectives))

    as_mean = {"rate": _MEAN_RATE}
    rows = [
        planned(SMITH, _SMITH, pairs),
        planned(COLDE, _COLDE, contrastive),
        planned(SMITH_MEAN, _SMITH_AS_MEAN, pairs, **as_mean),
        planned(COLDE_MEAN, _COLDE_AS_MEAN, contrastive, **as_mean),
        planned(
            "SMITH begun as the mean, pairs and sections",
            _SMITH_AS_MEAN,
            pairs,
            sections,
            **as_mean,
        ),
        planned("SMITH begun as the mean, sections only", _SMITH_AS_MEAN, sections, **as_mean),
        planned("SMITH begun as the mean, contrastive", _SMITH_AS_MEAN, contrastive, **as_mean),
        planned("SMITH, contrastive", _SMITH, contrastive),
        planned("CoLDE, pairs", _COLDE, pairs),
        planned("CoLDE, contrastive without sections", _COLDE, _contrastive(1)),
        planned("CoLDE, contrastive without LSTM", _COLDE | {"aggregate": "mean"}, contrastive),
    ]
    if seed:
        return rows
    untrained = _tuning(size, size.blocks, _MEAN_RATE, pairs) | {"steps": 0}
    return [Planned(MEAN, 0, _SMITH_AS_MEAN, untrained), *rows]


def plan_lengths(seed: int, size: Size) -> dict[str, list[Planned]]:
    """Plan the models of figure 7: for each length those of `IN_FIGURES`."""
    kinds = {
        SMITH: (_SMITH, "pairs", _RATE),
        COLDE: (_COLDE, _contrastive(2), _RATE),
        SMITH_MEAN: (_SMITH_AS_MEAN, "pairs", _MEAN_RATE),
        COLDE_MEAN: (_COLDE_AS_MEAN, _contrastive(2), _MEAN_RATE),
    }
    return {
        row: [
            Planned(row, seed, model, _tuning(size, blocks, rate, objective))
            for blocks in size.lengths
        ]
        for row, (model, objective, rate) in kinds.items()
    }


def _contrastive(parts: int) -> dict[str, Any]:
    return {"kind": "supcon", "groups": "pairs", "parts": parts, "temperature": _TEMPERATURE}


def _tuning(size: Size, blocks: int, rate: float, *objectives: Any) -> dict[str, Any]:
    """Lay out a recipe; a batch of sections has as many rows as its documents have sections."""
    parts = max((one.get("parts", 2) for one in objectives if isinstance(one, dict)), default=1)
    return {
        "steps": size.steps,
        "documents": size.documents * (parts if "pairs" not in objectives else 1),
        "chunk": 512,
        "max_blocks": blocks,
        "objectives": list(objectives),
        "optimiser": {"document_rate": rate, "warm_up": size.steps // 10},
    }

"""Which models the CoLDE benchmark trains, all over the same frozen block vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.colde.models import Planned

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

_SMITH = {"architecture": "smith", "combine": "normal"}
_COLDE = {"architecture": "colde"}
_COLDE_MEAN_ONLY = {"architecture": "colde", "aggregate": "mean"}
_AS_MEAN = {"begin_as_mean": True}
_SMITH_AS_MEAN = {"architecture": "smith", "combine": "attention", **_AS_MEAN}
_COLDE_AS_MEAN = {"architecture": "colde", "aggregate": "lstm_and_mean", **_AS_MEAN}
# A high rate harms what begins as the mean; the LSTM from random weights needs a higher one.
_RATES = {
    ("smith", False): 3e-4,
    ("colde", False): 1e-3,
    ("smith", True): 1e-4,
    ("colde", True): 3e-4,
}
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

    steps: int = 60
    documents: int = 32
    blocks: int = 32
    lengths: tuple[int, ...] = (4, 8, 16, 32)


def plan_table(seed: int, size: Size) -> list[Planned]:
    """Plan the models of one seed; what is not trained comes with the first only."""
    contrastive, sections = _contrastive(2), {"kind": "sections"}
    rows = [
        _planned(SMITH, seed, size, _SMITH, "pairs"),
        _planned(COLDE, seed, size, _COLDE, contrastive),
        _planned(SMITH_MEAN, seed, size, _SMITH_AS_MEAN, "pairs"),
        _planned(COLDE_MEAN, seed, size, _COLDE_AS_MEAN, contrastive),
        _planned(f"{SMITH_MEAN} and sections", seed, size, _SMITH_AS_MEAN, "pairs", sections),
        _planned("SMITH begun as the mean, sections", seed, size, _SMITH_AS_MEAN, sections),
        _planned("SMITH, contrastive", seed, size, _SMITH, contrastive),
        _planned("CoLDE, pairs", seed, size, _COLDE, "pairs"),
        _planned("CoLDE without sections", seed, size, _COLDE, _contrastive(1)),
        _planned("CoLDE without LSTM", seed, size, _COLDE_MEAN_ONLY, contrastive),
    ]
    if seed:
        return rows
    untrained = _planned(MEAN, 0, size, _SMITH_AS_MEAN, "pairs")
    return [replace(untrained, tuning=dict(untrained.tuning) | {"steps": 0}), *rows]


def plan_lengths(seed: int, size: Size) -> dict[str, list[Planned]]:
    """Plan the models of figure 7: for each length, the two papers' and those begun as the mean."""
    kinds: dict[str, tuple[dict[str, Any], Any]] = {
        SMITH: (_SMITH, "pairs"),
        COLDE: (_COLDE, _contrastive(2)),
        SMITH_MEAN: (_SMITH_AS_MEAN, "pairs"),
        COLDE_MEAN: (_COLDE_AS_MEAN, _contrastive(2)),
    }
    return {
        row: [
            _planned(row, seed, replace(size, blocks=blocks), model, objective)
            for blocks in size.lengths
        ]
        for row, (model, objective) in kinds.items()
    }


def _planned(row: str, seed: int, size: Size, model: dict[str, Any], *objectives: Any) -> Planned:
    """Plan a model; a batch of sections has as many rows as its documents have sections."""
    parts = max((one.get("parts", 2) for one in objectives if isinstance(one, dict)), default=1)
    rate = _RATES[model["architecture"], "begin_as_mean" in model]
    tuning = {
        "steps": size.steps,
        "documents": size.documents * (1 if "pairs" in objectives else parts),
        "chunk": 512,
        "max_blocks": size.blocks,
        "objectives": list(objectives),
        "optimiser": {"document_rate": rate, "warm_up": size.steps // 10},
    }
    return Planned(row, seed, model, tuning)


def _contrastive(parts: int) -> dict[str, Any]:
    return {"kind": "supcon", "groups": "pairs", "parts": parts, "temperature": _TEMPERATURE}

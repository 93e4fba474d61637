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
_TEMPERATURE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the benchmark is; every model takes these steps over as many documents.

    Attributes:
        steps: of each model.
        documents: of a step.
        blocks: of a document that training reads, where the length is not what varies.
        lengths: in blocks, where it is.
        batches: in documents of a step, where the batch is what varies.
        rates: of learning, ascending; each model and loss gets the best one of them.
    """

    steps: int = 60
    documents: int = 32
    blocks: int = 32
    lengths: tuple[int, ...] = (4, 8, 16, 32)
    batches: tuple[int, ...] = (8, 16, 32, 64)
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3)


def plan_table(seed: int, size: Size) -> dict[str, list[Planned]]:
    """Plan the models of one seed: for each row, that is a model and a loss, one for each rate.

    What is not trained has no rate, and comes with the first seed only.
    """
    contrastive, sections = _contrastive(2), {"kind": "sections"}
    kinds: dict[str, tuple[dict[str, Any], list[Any]]] = {
        SMITH: (_SMITH, ["pairs"]),
        COLDE: (_COLDE, [contrastive]),
        SMITH_MEAN: (_SMITH_AS_MEAN, ["pairs"]),
        COLDE_MEAN: (_COLDE_AS_MEAN, [contrastive]),
        f"{SMITH_MEAN} and sections": (_SMITH_AS_MEAN, ["pairs", sections]),
        "SMITH begun as the mean, sections": (_SMITH_AS_MEAN, [sections]),
        "SMITH, contrastive": (_SMITH, [contrastive]),
        "CoLDE, pairs": (_COLDE, ["pairs"]),
        "CoLDE without sections": (_COLDE, [_contrastive(1)]),
        "CoLDE without LSTM": (_COLDE_MEAN_ONLY, [contrastive]),
    }
    rows = {
        row: [_planned(row, seed, size, model, rate, objectives) for rate in size.rates]
        for row, (model, objectives) in kinds.items()
    }
    if seed:
        return rows
    untrained = _planned(MEAN, 0, replace(size, steps=0), _SMITH_AS_MEAN, 0.0, ["pairs"])
    return {MEAN: [untrained], **rows}


def plan_lengths(seed: int, size: Size, rates: Mapping[str, float]) -> dict[str, list[Planned]]:
    """Plan the models of figure 7: for each length, the two papers' and those begun as the mean.

    Args:
        seed: of all of them.
        size: with the lengths.
        rates: of learning, by row; rows that have none yet are left out.
    """
    kinds: dict[str, tuple[dict[str, Any], Any]] = {
        SMITH: (_SMITH, "pairs"),
        COLDE: (_COLDE, _contrastive(2)),
        SMITH_MEAN: (_SMITH_AS_MEAN, "pairs"),
        COLDE_MEAN: (_COLDE_AS_MEAN, _contrastive(2)),
    }
    return {
        row: [
            _planned(row, seed, replace(size, blocks=blocks), model, rates[row], [objective])
            for blocks in size.lengths
        ]
        for row, (model, objective) in kinds.items()
        if row in rates
    }


def plan_batches(seed: int, size: Size, rates: Mapping[str, float]) -> dict[str, list[Planned]]:
    """Plan the models of figure 6: CoLDE and CoLDE begun as the mean, for each size of the batch.

    All see as many documents, as in the paper: batches of half the size take twice the steps. The
    rate is that of the table, for all sizes, as the paper has one.

    Args:
        seed: of all of them.
        size: with the batches.
        rates: of learning, by row; rows that have none yet are left out.
    """
    kinds = {COLDE: _COLDE, COLDE_MEAN: _COLDE_AS_MEAN}
    seen = size.steps * size.documents
    return {
        row: [
            _planned(
                row,
                seed,
                replace(size, documents=documents, steps=max(1, round(seen / documents))),
                model,
                rates[row],
                [_contrastive(2)],
            )
            for documents in size.batches
        ]
        for row, model in kinds.items()
        if row in rates
    }


def documents_of(planned: Planned) -> int:
    """Return the documents of a step; a contrastive batch counts sections."""
    parts = [one.get("parts", 1) for one in planned.tuning["objectives"] if isinstance(one, dict)]
    return int(planned.tuning["documents"]) // max(parts, default=1)


def _planned(
    row: str, seed: int, size: Size, model: dict[str, Any], rate: float, objectives: list[Any]
) -> Planned:
    """Plan a model; a batch of sections has as many rows as its documents have sections."""
    parts = max((one.get("parts", 2) for one in objectives if isinstance(one, dict)), default=1)
    tuning = {
        "steps": size.steps,
        "documents": size.documents * (1 if "pairs" in objectives else parts),
        "chunk": 512,
        "max_blocks": size.blocks,
        "objectives": objectives,
        "optimiser": {"document_rate": rate, "warm_up": size.steps // 10},
    }
    return Planned(row, seed, model, tuning)


def _contrastive(parts: int) -> dict[str, Any]:
    return {"kind": "supcon", "groups": "pairs", "parts": parts, "temperature": _TEMPERATURE}

"""The three ablations of SMITH (sections 5.3, 5.4 and 5.6) at the size of a laptop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.ablation.cells import Cell
from benchmarks.ablation.data import LONGEST, AblationData
from benchmarks.ablation.training import Run, encode_corpora, fit, make_recipe, new_reader
from encoder.arrays import Float32
from encoder.export.create import model_config
from encoder.models.smith import Combine, Pooling, Smith, SmithConfig
from encoder.models.smith import begin_as_mean as start_as_mean
from training.collate import training_device

PRETRAINING: Mapping[str, tuple[str, ...]] = {
    "NP": (),
    "WP": ("wp",),
    "SP": ("sp",),
    "WP+SP": ("wp", "sp"),
}
COMBINATIONS: tuple[Combine, ...] = ("normal", "sum_concat", "mean_concat", "attention")
BLOCK_PRETRAINING = "pretraining over block vectors"
MEAN = "mean of the blocks, untrained"
FROM_MEAN = "attention, begun as that mean"

# Rates of fine-tuning, chosen on validation with one seed between 1e-4 and 1e-3: what begins as
# the mean is harmed by more than the second.
_RATE, _FROM_MEAN_RATE = 3e-4, 1e-4
_PRETRAINING_RATE = 1e-3
_DROPOUT = 0.1  # the paper's
# The paper's is "cls", whose state masked words alone do not train: that takes long fine-tuning.
_POOLING: Pooling = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the ablations are; every model takes exactly these steps.

    Attributes:
        pretraining_steps: with one objective; two take half as many, and read as much.
        pretraining_documents: of such a step and objective.
        tuning_steps: of fine-tuning after it, or without it.
        tuning_documents: of such a step, two a pair.
        text_blocks: blocks of a document that pretraining and its fine-tuning read.
        hidden_size: of the pretrained model.
        sentence_layers: of that model; it has one document layer.
        steps: of fine-tuning over cached block vectors.
        documents: of such a step.
        block_pretraining_steps: of the same size before it, where there is pretraining.
        blocks: of a document, where the length is not what varies.
        lengths: in blocks, where it is.
    """

    pretraining_steps: int = 80
    pretraining_documents: int = 16
    tuning_steps: int = 40
    tuning_documents: int = 32
    text_blocks: int = 4
    hidden_size: int = 128
    sentence_layers: int = 2
    steps: int = 60
    documents: int = 48
    block_pretraining_steps: int = 600
    blocks: int = 16
    lengths: tuple[int, ...] = (2, 4, 8, 16, 32, LONGEST)


def pretraining_cells(data: AblationData, seed: int, size: Size) -> list[Cell]:
    """Plan NP, WP, SP and WP+SP (section 5.3): from random weights, both levels, over text."""
    return [
        Cell("pretraining", name, seed, *_pretrained(data, seed, size, objectives))
        for name, objectives in PRETRAINING.items()
    ]


def block_pretraining_cells(data: AblationData, seed: int, size: Size) -> list[Cell]:
    """Plan NP and SP where the sentence level is frozen: over cached block vectors.

    The document level (`normal`, as in the paper) has random weights. Masked words have nothing to
    teach it, so two of the four remain.
    """
    tuning = _over_vectors(size, size.blocks, "pairs", _RATE)
    pretraining = _over_vectors(size, size.blocks, "sp", _PRETRAINING_RATE) | {
        "steps": size.block_pretraining_steps
    }
    model = {"combine": "normal"}
    return [
        Cell(BLOCK_PRETRAINING, "NP", seed, *_over_frozen(data, seed, model, tuning)),
        Cell(BLOCK_PRETRAINING, "SP", seed, *_over_frozen(data, seed, model, tuning, pretraining)),
    ]


def combination_cells(data: AblationData, seed: int, size: Size, loss: str) -> list[Cell]:
    """Plan the four combinations (section 5.6) over cached block vectors, from random weights.

    Beside them the mean of the block vectors, and the attention that begins as it.

    Args:
        data: to train on.
        seed: of weights and sampling.
        size: of the ablation.
        loss: "pairs", which is the paper's, or "links".
    """
    part = f"combinations, {loss}"
    tuning = _over_vectors(size, size.blocks, loss, _RATE)
    cells = [
        Cell(part, name, seed, *_over_frozen(data, seed, {"combine": name}, tuning))
        for name in COMBINATIONS
    ]
    tuning = _over_vectors(size, size.blocks, loss, _FROM_MEAN_RATE)
    return [
        *cells,
        Cell(part, FROM_MEAN, seed, *_over_frozen(data, seed, _AS_MEAN, tuning)),
        Cell(part, MEAN, 0, *_over_frozen(data, 0, _ONLY_MEAN, tuning | {"steps": 0})),
    ]


def length_cells(data: AblationData, seed: int, size: Size, loss: str) -> list[Cell]:
    """Plan the lengths (section 5.4): the mean, and the attention that begins as it, trained.

    A model is trained for each length, as in the paper.
    """
    cells = []
    for blocks in size.lengths:
        tuning = _over_vectors(size, blocks, loss, _FROM_MEAN_RATE)
        mean = _over_frozen(data, 0, _ONLY_MEAN, tuning | {"steps": 0})
        trained = _over_frozen(data, seed, _AS_MEAN, tuning)
        cells += [
            Cell(f"length, {MEAN}", length_row(blocks), 0, *mean),
            Cell(f"length, {FROM_MEAN}", length_row(blocks), seed, *trained),
        ]
    return cells


def length_row(blocks: int) -> str:
    """Name the row of a length."""
    return f"{blocks} blocks"


_AS_MEAN: dict[str, Any] = {"combine": "attention", "begin_as_mean": True}
_ONLY_MEAN = _AS_MEAN | {"document_layers": 0}
_Planned = tuple[dict[str, Any], Callable[[Path], list[Float32]]]  # settings, encode of a cell


def _over_vectors(size: Size, blocks: int, loss: str, rate: float) -> dict[str, Any]:
    return {
        "steps": size.steps,
        "documents": size.documents,
        "max_blocks": blocks,
        "objectives": [loss],
        "optimiser": {"document_rate": rate, "warm_up": size.steps // 10},
    }


def _over_text(size: Size, steps: int, documents: int, objectives: Sequence[str]) -> dict[str, Any]:
    rate = _RATE if "pairs" in objectives else _PRETRAINING_RATE
    rates = {"document_rate": rate, "sentence_rate": rate}
    return {
        "steps": steps,
        "documents": documents,
        "max_blocks": size.text_blocks,
        "objectives": list(objectives),
        "optimiser": {**rates, "warm_up": steps // 10},
        "sentence_level": {"trained": "all", "blocks": size.text_blocks},
    }


def _over_frozen(
    data: AblationData,
    seed: int,
    model: Mapping[str, Any],
    tuning: Mapping[str, Any],
    pretraining: Mapping[str, Any] | None = None,
) -> _Planned:
    """Plan a document level over cached block vectors; of no steps, it stays as it begins."""
    before = {} if pretraining is None else {"pretraining": dict(pretraining)}
    stages = {**before, "tuning": dict(tuning)}

    def encode(directory: Path) -> list[Float32]:
        smith = document_level(data, seed, **model)
        reader = new_reader(data, tuning["max_blocks"])
        for name, stage in stages.items():
            if stage["steps"]:
                fit(smith, Run(data, reader, make_recipe(seed, stage)), directory / name)
        return encode_corpora(smith, data, reader)

    return {"model": dict(model), **stages}, encode


def _pretrained(data: AblationData, seed: int, size: Size, objectives: Sequence[str]) -> _Planned:
    """Plan a small model that is pretrained and then fine-tuned on pairs (section 4.3)."""
    stages = {}
    if objectives:
        steps = size.pretraining_steps // len(objectives)
        stages["pretraining"] = _over_text(size, steps, size.pretraining_documents, objectives)
    stages["tuning"] = _over_text(size, size.tuning_steps, size.tuning_documents, ("pairs",))
    model = {
        "hidden_size": size.hidden_size,
        "sentence_layers": size.sentence_layers,
        "pooling": _POOLING,
    }

    def encode(directory: Path) -> list[Float32]:
        smith = _small_model(data, seed, size)
        reader = new_reader(data, size.text_blocks, width=size.hidden_size)
        for stage, tuning in stages.items():
            fit(smith, Run(data, reader, make_recipe(seed, tuning)), directory / stage)
        return encode_corpora(smith, data, reader)

    return {"model": model, **stages}, encode


def document_level(
    data: AblationData,
    seed: int,
    combine: Combine,
    document_layers: int = 1,
    begin_as_mean: bool = False,
) -> Smith:
    """Make a document level alone, as wide as the block vectors; the sentence level is never run.

    Args:
        data: whose checkpoint made the block vectors.
        seed: of the weights.
        combine: of the document level.
        document_layers: of it.
        begin_as_mean: rather than with random weights; `combine` must be "attention".
    """
    shipped = model_config(data.checkpoint)
    assert isinstance(shipped, SmithConfig), "the ablations of SMITH start from a SMITH"
    config = replace(
        shipped,
        vocabulary_size=1,
        sentence_layers=0,
        document_layers=document_layers,
        max_blocks=LONGEST,
        dimension=data.checkpoint.block_dimension,
        term_features=0,
        term_dimension=0,
        sketch_dimension=0,
        combine=combine,
        dropout=_DROPOUT,
    )
    torch.manual_seed(seed)
    model = Smith(config)
    if begin_as_mean:
        start_as_mean(model.document_encoder)
    return model.eval().to(training_device())


def _small_model(data: AblationData, seed: int, size: Size) -> Smith:
    """Make a model of both levels with random weights, that reads the blocks of the archives."""
    config = SmithConfig(
        vocabulary_size=int(data.checkpoint.model["vocabulary_size"]),
        block_length=data.checkpoint.block_length,
        max_blocks=size.text_blocks,
        hidden_size=size.hidden_size,
        intermediate_size=4 * size.hidden_size,
        attention_heads=4,
        sentence_layers=size.sentence_layers,
        document_layers=1,
        dimension=size.hidden_size,
        pooling=_POOLING,
        dropout=_DROPOUT,
    )
    torch.manual_seed(seed)
    return Smith(config).eval().to(training_device())

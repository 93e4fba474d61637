"""The models of the CoLDE benchmark: document levels over the same cached block vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ablation.data import AblationData
from benchmarks.ablation.training import Run, fit, make_recipe, new_reader
from benchmarks.colde.data import READ, READINGS, WHOLE, Truth, parts_of, rows_of
from encoder.arrays import Float32
from encoder.export.create import model_config
from encoder.models.architecture import EncoderModel
from encoder.models.colde import ColdeConfig
from encoder.models.registry import ENCODERS
from encoder.models.smith import SmithConfig
from training.collate import encode_slices, training_device

DROPOUT = 0.1  # of both papers


@dataclass(frozen=True, slots=True)
class Planned:
    """One model of the benchmark.

    Attributes:
        row: of the tables.
        seed: of weights and sampling.
        model: architecture, whether it begins as the mean, and fields of its configuration.
        tuning: fields of a training recipe; of no steps, the model stays as it begins.
    """

    row: str
    seed: int
    model: Mapping[str, Any]
    tuning: Mapping[str, Any]

    @property
    def rate(self) -> float:
        """The learning rate; 0 of a model that is not trained."""
        return float(self.tuning["optimiser"]["document_rate"])

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the outcome beside data and seed, JSON-serialisable."""
        return {"model": dict(self.model), "tuning": dict(self.tuning)}


def train_and_read(
    planned: Planned, data: AblationData, truths: list[Truth], directory: Path
) -> dict[str, list[Float32]]:
    """Train a model and encode the corpora with it.

    Training reads as many blocks of a document as `tuning` says, reading then takes all up to
    `READ`, as in the paper's figure 7.

    Returns:
        For each reading the vectors [N, dimension] of each corpus, 0 where it lacks a document.
    """
    model = document_level(data, planned)
    if planned.tuning["steps"]:
        reader = new_reader(data, planned.tuning["max_blocks"])
        fit(model, Run(data, reader, make_recipe(planned.seed, planned.tuning)), directory)
    return {reading: _encode(model, data, truths, reading) for reading in READINGS}


def document_level(data: AblationData, planned: Planned) -> EncoderModel:
    """Make a document level as wide as the block vectors; the sentence level is never run."""
    model = dict(planned.model)
    architecture, mean = model.pop("architecture"), model.pop("begin_as_mean", False)
    torch.manual_seed(planned.seed)
    made = ENCODERS[architecture].model(_config(data, architecture, model))
    if mean:
        ENCODERS[architecture].begin_as_mean(made)
    return made.eval().to(training_device())


def _config(
    data: AblationData, architecture: str, fields: Mapping[str, Any]
) -> SmithConfig | ColdeConfig:
    width = data.checkpoint.block_dimension
    common = {
        "vocabulary_size": 1,
        "block_length": data.checkpoint.block_length,
        "max_blocks": READ,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "attention_heads": model_config(data.checkpoint).attention_heads,
        "sentence_layers": 0,
        "dimension": width,
        "dropout": DROPOUT,
    }
    if architecture == "colde":
        return replace(ColdeConfig(lstm_size=256, **common), **fields)
    return replace(SmithConfig(document_layers=1, **common), **fields)


def _encode(
    model: EncoderModel, data: AblationData, truths: list[Truth], reading: str
) -> list[Float32]:
    reader = new_reader(data, READ)
    corpora = []
    for number, (corpus, truth) in enumerate(zip(data.corpora, truths, strict=True)):
        rows = range(len(truth.ids)) if reading == WHOLE else rows_of(truth)
        vectors = np.zeros((len(truth.ids), model.config.dimension), dtype=np.float32)
        vectors[list(rows)] = encode_slices(model, reader, parts_of(corpus, number, truth, reading))
        corpora.append(vectors)
    return corpora

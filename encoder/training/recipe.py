"""A training recipe: all that a run hangs on, but for its data."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Literal

Precision = Literal["fp32", "bf16"]
Trained = Literal["frozen", "last", "all"]
Decay = Literal["linear", "cosine"]
Kind = Literal[
    "pairs", "links", "supcon", "halves", "drop", "distil", "wp", "sp", "sections", "rerank"
]
Parameter = float | int | str
LEARNED = "learned"

# What an objective of each kind may say besides kind, name and weight, with its default.
# An objective that needs a new word has it added here.
_CONTRASTIVE: dict[str, Parameter] = {"temperature": 0.05, "hard_negatives": 0}
PARAMETERS: Mapping[str, Mapping[str, Parameter]] = MappingProxyType(
    {
        "pairs": {"amplifier": 6.0},
        "links": _CONTRASTIVE,
        "supcon": {"temperature": 0.1, "parts": 2, "groups": "links"},
        "sections": {"temperature": 0.1, "parts": 2},
        "halves": _CONTRASTIVE,
        "drop": {**_CONTRASTIVE, "share": 0.5},
        "distil": {"teacher": "lexical", "teacher_temperature": 0.05, "temperature": 0.05},
        "wp": {"share": 0.15},
        "sp": {"masked_blocks": 2},
        "rerank": {"positives": 0.5, "candidates": 30, "random": 0.5, "tokens": 256},
    }
)


@dataclass(frozen=True, slots=True)
class ObjectiveRecipe:
    """One `[[objective]]` table.

    Attributes:
        kind: what is learned from.
        name: in curves and messages; the kind where the table gives none.
        weight: of its loss in the sum.
        parameters: the words of its kind (`PARAMETERS`), defaults filled in. `temperature` is a
            number or "learned".
    """

    kind: Kind
    name: str
    weight: float
    parameters: Mapping[str, Parameter]

    def number(self, name: str) -> float:
        """Return a parameter that is a number."""
        return float(self.parameters[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserRecipe:
    """The `[optimiser]` table: AdamW.

    Attributes:
        document_rate: learning rate of the document level and of the heads.
        sentence_rate: learning rate of the sentence level where it is trained.
        term_rate: learning rate of the term channel.
        warm_up: steps in which the rates rise from 0.
        decay: how they fall to 0 until the last step.
        weight_decay: of the matrices of linear layers; nothing else decays.
        gradient_clip: longest gradient.
    """

    document_rate: float = 1e-3
    sentence_rate: float = 2e-5
    term_rate: float = 1e-3
    warm_up: int = 0
    decay: Decay = "linear"
    weight_decay: float = 0.01
    gradient_clip: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceLevelRecipe:
    """The `[sentence_level]` table.

    Attributes:
        trained: "frozen"; "last": the last layers; "all": token embedding and all layers.
        layers: how many with "last"; not given otherwise.
        blocks: random blocks of a document that a step computes from tokens; not given with
            "frozen".
    """

    trained: Trained = "frozen"
    layers: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRecipe:
    """The `[terms]` table: the term channel of a model that starts without one.

    Attributes:
        dimension: how many dimensions of the document vector it gets, beside those of the blocks;
            0 for no channel.
        residual_dimension: how many of them begin as a mix of the residual.
        buckets: rows of the table that words of several WordPieces share.
        span: dimensions of latent semantic analysis that training chooses from.
        residual: random projections of what lies outside of the span, likewise.
        power: of the singular values that the dimensions of the span are divided by.
        documents: that the span is fitted on, at most.
        balance: the weight of the blocks beside the terms, to begin with.
        sketch: dimensions of a sketch of all words beside these, which is not learned; 0 for none.
        sketch_balance: the weight of the sketch beside the terms; training does not change it.
    """

    dimension: int = 0
    residual_dimension: int = 0
    buckets: int = 16_384
    span: int = 512
    residual: int = 512
    power: float = 0.25
    documents: int = 6_000
    balance: float = 0.6
    sketch: int = 0
    sketch_balance: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """What a run hangs on, but for its data and the checkpoint it starts from.

    Attributes:
        name: for people.
        seed: of every random choice.
        steps: of the optimiser, at most.
        documents: of one batch.
        chunk: documents of one forward pass (`contrastive_cache`).
        max_blocks: sentence blocks of a document that training reads.
        accumulation: batches of one step.
        dropout: share of activations that a step leaves out, in every layer.
        precision: "bf16" computes the encoder in bfloat16; weights and losses stay fp32.
        validation_interval: steps between validations.
        checkpoint_interval: steps between checkpoints of the run.
        patience: validations in a row without a better figure that end the run.
        optimiser: rates and their course.
        sentence_level: what of it is trained.
        terms: the term channel that the model is given.
        objectives: at least one, of different names.
    """

    name: str
    steps: int
    documents: int
    objectives: tuple[ObjectiveRecipe, ...]
    seed: int = 0
    chunk: int = 64
    max_blocks: int = 64
    accumulation: int = 1
    dropout: float = 0.1
    precision: Precision = "fp32"
    validation_interval: int = 100
    checkpoint_interval: int = 100
    patience: int = 10
    optimiser: OptimiserRecipe = field(default_factory=OptimiserRecipe)
    sentence_level: SentenceLevelRecipe = field(default_factory=SentenceLevelRecipe)
    terms: TermRecipe = field(default_factory=TermRecipe)


def recipe_fingerprint(recipe: TrainingRecipe) -> str:
    """Return the SHA-256, in hex, of all that a recipe says."""
    values = asdict(recipe)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

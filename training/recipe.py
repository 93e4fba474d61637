"""A training recipe: all that a run hangs on, but for its data."""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from training.errors import TrainingRecipeError

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


_AT_LEAST_ONE = frozenset(
    {"steps", "documents", "chunk", "max_blocks", "accumulation", "patience"}
    | {
        "validation_interval",
        "checkpoint_interval",
        "layers",
        "blocks",
        "masked_blocks",
        "span",
        "parts",
        "candidates",
        "tokens",
    }
)
_SHARES = frozenset({"share", "dropout", "positives", "random"})
_ABOVE_ZERO = frozenset(
    {"share", "positives", "temperature", "teacher_temperature", "amplifier", "gradient_clip"}
    | {"balance", "sketch_balance"}
)


def read_training_recipe(path: Path) -> TrainingRecipe:
    """Read a recipe file.

    Raises:
        TrainingRecipeError: the file is missing, or a field unknown, missing or wrong; the
            message names it.
    """
    try:
        return parse_training_recipe(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TrainingRecipeError) as error:
        raise TrainingRecipeError(f"recipe {path}: {error}") from error


def parse_training_recipe(table: Mapping[str, Any]) -> TrainingRecipe:
    """Make a recipe of what a TOML file holds.

    Raises:
        TrainingRecipeError: a field is unknown, missing or wrong; the message names it.
    """
    values = dict(table)
    objectives = values.pop("objective", [])
    if not isinstance(objectives, list) or not objectives:
        raise TrainingRecipeError("it has no [[objective]]")
    parsed = tuple(_objective(index + 1, entry) for index, entry in enumerate(objectives))
    optimiser = _table(OptimiserRecipe, values.pop("optimiser", {}), "optimiser.")
    sentence_level = _table(
        SentenceLevelRecipe, values.pop("sentence_level", {}), "sentence_level."
    )
    parts = {
        "objectives": parsed,
        "optimiser": optimiser,
        "sentence_level": sentence_level,
        "terms": _table(TermRecipe, values.pop("terms", {}), "terms."),
    }
    recipe: TrainingRecipe = _table(TrainingRecipe, values, "", parts)
    _check_whole(recipe)
    return recipe


def _table(
    kind: type[Any], values: Any, prefix: str, parts: Mapping[str, Any] | None = None
) -> Any:
    """Make a dataclass of a table, each field checked by its type and by its rule."""
    if not isinstance(values, dict):
        raise TrainingRecipeError(f"{prefix.removesuffix('.')} must be a table")
    parts = parts or {}
    known = {f.name: f for f in fields(kind) if f.name not in parts}
    for name, value in values.items():
        if name not in known:
            raise TrainingRecipeError(
                f"unknown field {prefix}{name}; known are {_list(sorted(known))}"
            )
        _check(prefix, name, value, known[name].type)
    try:
        return kind(**values, **parts)
    except TypeError as error:  # names the missing fields
        raise TrainingRecipeError(str(error).partition("() ")[2]) from error


def _objective(number: int, entry: Any) -> ObjectiveRecipe:
    where = f"objective {number}: "
    values = dict(entry) if isinstance(entry, dict) else {}
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in PARAMETERS:
        raise TrainingRecipeError(f"{where}kind must be one of {_list(PARAMETERS)}, not {kind!r}")
    name, weight = values.pop("name", kind), values.pop("weight", 1.0)
    _check(where, "name", name, str)
    _check(where, "weight", weight, float)
    parameters = dict(PARAMETERS[kind])
    for word, value in values.items():
        if word not in parameters:
            raise TrainingRecipeError(
                f"{where}unknown field {word}; {kind} knows {_list(sorted(parameters))}"
            )
        if word != "temperature" or value != LEARNED:
            _check(where, word, value, type(parameters[word]))
        parameters[word] = value
    return ObjectiveRecipe(cast(Kind, kind), name, float(weight), parameters)


def _check(where: str, word: str, value: Any, wanted: Any) -> None:
    """Check a field's value by its type and by the limits of its name."""
    choices = get_args(wanted)
    if choices and value not in choices:
        raise TrainingRecipeError(f"{where}{word} must be one of {_list(choices)}, not {value!r}")
    if wanted is str and not isinstance(value, str):
        raise TrainingRecipeError(f"{where}{word} must be text, not {value!r}")
    if wanted not in (int, float):
        return
    if isinstance(value, bool) or not isinstance(value, int if wanted is int else int | float):
        what = "a whole number" if wanted is int else "a number"
        raise TrainingRecipeError(f"{where}{word} must be {what}, not {value!r}")
    least, highest = 1 if word in _AT_LEAST_ONE else 0, 1 if word in _SHARES else math.inf
    if not least <= value < highest or (word in _ABOVE_ZERO and value == 0):
        above = "above 0" if word in _ABOVE_ZERO else f"at least {least}"
        below = " and below 1" if word in _SHARES else " and finite"
        raise TrainingRecipeError(f"{where}{word} must be {above}{below}, not {value!r}")


def _check_whole(recipe: TrainingRecipe) -> None:
    """Check what one field demands of another."""
    level = recipe.sentence_level
    if (level.trained == "last") != (level.layers > 0):
        raise TrainingRecipeError('sentence_level.layers goes with trained = "last", and only so')
    _check_terms(recipe.terms)
    _check_objectives(recipe.objectives)
    kinds = {objective.kind for objective in recipe.objectives}
    if "rerank" in kinds:
        if len(recipe.objectives) > 1:
            raise TrainingRecipeError('objective "rerank" trains another model than the others do')
        return  # a reranker reads whole texts: no blocks of them are drawn
    if (level.trained == "frozen") != (level.blocks == 0):
        raise TrainingRecipeError(
            "sentence_level.blocks goes with a sentence level that is trained, and only so"
        )
    if "wp" in kinds and level.trained == "frozen":
        raise TrainingRecipeError('objective "wp" trains the sentence level, which is frozen')


def _check_objectives(objectives: Sequence[ObjectiveRecipe]) -> None:
    """Check that objectives can be told apart and have something to learn."""
    if len({objective.name for objective in objectives}) < len(objectives):
        raise TrainingRecipeError("two objectives have one name: give each a `name`")
    if all(objective.weight == 0 for objective in objectives):
        raise TrainingRecipeError("every objective has weight 0: there is nothing to learn")
    for objective in objectives:
        if objective.kind == "sections" and objective.number("parts") < 2:
            raise TrainingRecipeError(
                f"objective {objective.name}: parts must be at least 2: a section needs another"
            )


def _check_terms(terms: TermRecipe) -> None:
    """Check that the dimensions of a term channel have something to begin as."""
    if not terms.dimension:
        if terms.sketch:
            raise TrainingRecipeError("terms.sketch stands beside terms.dimension, which is 0")
        return
    if terms.residual_dimension > terms.dimension:
        raise TrainingRecipeError("terms.residual_dimension is part of terms.dimension: not above")
    mixed = max(terms.residual_dimension, terms.dimension - terms.span)
    if mixed > terms.residual:
        raise TrainingRecipeError(
            f"terms: {mixed} of {terms.dimension} dimensions begin as a mix of the residual, "
            f"which has {terms.residual}: raise terms.residual or terms.span"
        )
    if terms.documents <= terms.span:
        raise TrainingRecipeError("terms.documents must be above terms.span, which they are for")


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)

"""The plan of a comparison: a TOML file of models, their rates, and what papers report of them."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from encoder.export.recipe_file import RecipeTable, read_recipe_file
from training.errors import TrainingRecipeError
from training.recipe import (
    PositiveShare,
    TrainingRecipe,
    parse_training_recipe,
    pretrains,
    reads_tokens_only,
)

DEFAULT_PLAN = Path(__file__).parent / "plans" / "encoders.toml"
ENCODER_RECIPES = Path(__file__).parents[2] / "encoder" / "recipes"
# Fields of a training recipe that the comparison sets itself.
_OWN = ("name", "steps", "seed", "validation_interval", "checkpoint_interval", "patience")
_OWN_OF_OPTIMISER = ("document_rate", "sentence_rate", "warm_up")


class Reported(RecipeTable):
    """What a paper reports of a model.

    Attributes:
        data: the name of the data that it was measured on.
        source: paper and table.
        accuracy: of its pairs.
        f1: of its pairs, if it is reported.
    """

    data: str
    source: str
    accuracy: PositiveShare
    f1: PositiveShare | None = None


class PlannedModel(RecipeTable):
    """One `[[model]]` table: an architecture with a loss.

    Attributes:
        key: names its files, and selects it.
        name: in tables.
        recipe: of the new checkpoint: the name of one in `encoder/recipes`, or a path relative to
            the plan.
        create: changes to that recipe.
        training: changes to the plan's training recipe.
        pretraining: changes to the plan's recipe of pretraining; a model without is not pretrained.
        rates: learning rates of the document level to try, ascending.
        sentence_rate_share: the learning rate of the sentence level by that of the document level.
        reported: what papers report.
    """

    key: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    name: str
    recipe: str
    create: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    pretraining: dict[str, Any] | None = None
    rates: Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1)]
    sentence_rate_share: PositiveFloat = 1.0
    reported: Annotated[tuple[Reported, ...], Field(strict=False)] = ()

    @field_validator("rates")
    @classmethod
    def _check_rates(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if list(rates) != sorted(set(rates)):
            raise ValueError("must ascend")
        return rates


class Plan(RecipeTable):
    """What is compared, and how.

    Attributes:
        name: of the comparison.
        budget_seconds: of the training steps of each model, over all rates and seeds.
        seeds: of weights and batches. Rates are tried with the first one.
        validations: of a run, beside that before its first step.
        warm_up_share: of the steps of a run in which the rate rises.
        lengths: tokens of a document that are read, for quality by tokens read.
        timed_documents: whose encoding is timed.
        training: fields of a training recipe that all models share.
        pretraining: fields of the recipe of pretraining that all models that are pretrained share.
        pretraining_seconds: of the steps of each pretraining.
        pretraining_steps: instead of seconds.
        models: the `[[model]]` tables; the first one of those compared is the reference.
    """

    name: str
    budget_seconds: PositiveFloat
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(strict=False, min_length=1)]
    validations: PositiveInt = 2
    warm_up_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]
    timed_documents: PositiveInt = 8
    training: dict[str, Any]
    pretraining: dict[str, Any] = Field(default_factory=dict)
    pretraining_seconds: PositiveFloat | None = None
    pretraining_steps: PositiveInt | None = None
    models: Annotated[tuple[PlannedModel, ...], Field(alias="model", strict=False, min_length=1)]

    @model_validator(mode="after")
    def _check_whole(self) -> "Plan":
        for what, values in (
            ("keys", [one.key for one in self.models]),
            ("names", [one.name for one in self.models]),
            ("seeds", self.seeds),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"two {what} are equal")
        for one in self.models:
            _check_training(self, one)
            if one.pretraining is not None:
                _check_pretraining(self, one)
        return self

    def choose(self, keys: Sequence[str] | None) -> tuple[PlannedModel, ...]:
        """Return the models of these keys, in the order of the plan; all if none are given.

        Raises:
            TrainingRecipeError: there is no model of a key.
        """
        known = {one.key: one for one in self.models}
        for key in keys or ():
            if key not in known:
                raise TrainingRecipeError(f"{key!r} is none of {', '.join(known)}")
        return tuple(one for one in self.models if keys is None or one.key in keys)

    def runs(self, model: PlannedModel) -> int:
        """Return how often a model is trained: each rate once, the best one with every seed."""
        return len(model.rates) + len(self.seeds) - 1

    def pretraining_budget(self) -> "Budget":
        """Return how long each pretraining is."""
        return Budget(self.pretraining_seconds, self.pretraining_steps)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much training each model gets, over all of its runs.

    Attributes:
        seconds: of training steps, at the pace measured at first; None if steps are given.
        steps: instead of seconds.
    """

    seconds: float | None
    steps: int | None

    def steps_of_run(self, runs: int, seconds_per_step: float) -> int:
        """Return the steps of one of the runs of a model; 0 if the budget is too small.

        Args:
            runs: of the model.
            seconds_per_step: its pace; 0 while it is unknown, for which any budget may do.
        """
        if self.steps is not None:
            return self.steps // runs
        seconds = (self.seconds or 0.0) / runs
        return int(seconds / seconds_per_step) if seconds_per_step else int(seconds > 0)


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        TrainingRecipeError: the file is missing, or a field is unknown, missing or wrong; or it
            names a recipe that is not there. The message names it.
    """
    plan = read_recipe_file(path, Plan, TrainingRecipeError)
    for number, one in enumerate(plan.models, start=1):
        if not recipe_path(path, one).is_file():
            raise TrainingRecipeError(
                f"recipe {path}: model.{number}.recipe: there is no {one.recipe!r} in "
                "encoder/recipes, nor beside the plan"
            )
    return plan


def recipe_path(plan: Path, model: PlannedModel) -> Path:
    """Return the file of the recipe that a model of a plan is created by."""
    shipped = ENCODER_RECIPES / f"{model.recipe}.toml"
    return shipped if shipped.is_file() else plan.parent / model.recipe


def creation_table(plan: Path, model: PlannedModel) -> dict[str, Any]:
    """Return the recipe of a new checkpoint, as a table.

    Raises:
        TrainingRecipeError: the file is no TOML.
    """
    path = recipe_path(plan, model)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingRecipeError(f"recipe {path}: {error}") from error
    return merge(table, model.create)


def training_table(
    plan: Plan, model: PlannedModel, *, rate: float, seed: int, steps: int
) -> dict[str, Any]:
    """Return the training recipe of one run, as a table.

    Args:
        plan: of the comparison.
        model: to train.
        rate: learning rate of the document level.
        seed: of the run.
        steps: of the run.
    """
    own = _own(plan, model.key, seed, steps)
    own["optimiser"] |= {
        "document_rate": rate,
        "sentence_rate": rate * model.sentence_rate_share,
    }
    return merge(merge(plan.training, model.training), own)


def pretraining_table(plan: Plan, model: PlannedModel, *, steps: int) -> dict[str, Any]:
    """Return the recipe of the pretraining of a model, as a table."""
    own = _own(plan, f"{model.key}-pretraining", plan.seeds[0], steps)
    return merge(merge(plan.pretraining, model.pretraining or {}), own)


def _own(plan: Plan, name: str, seed: int, steps: int) -> dict[str, Any]:
    validation_interval = -(-steps // plan.validations)
    return {
        "name": name,
        "steps": steps,
        "seed": seed,
        "validation_interval": validation_interval,
        "checkpoint_interval": max(1, min(50, validation_interval)),
        "patience": plan.validations + 1,  # the whole budget is used
        "optimiser": {"warm_up": int(plan.warm_up_share * steps)},
    }


def recipe_of_run(
    plan: Plan, model: PlannedModel, *, rate: float, seed: int, steps: int
) -> TrainingRecipe:
    """Return the training recipe of one run."""
    table = training_table(plan, model, rate=rate, seed=seed, steps=steps)
    return parse_training_recipe(table)


def merge(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with changes: tables are merged, everything else is replaced."""
    merged = dict(table)
    for name, value in changes.items():
        old = merged.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[name] = merge(old, value)
        else:
            merged[name] = value
    return merged


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of what decides a comparison, JSON-serialisable."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _check_training(plan: Plan, model: PlannedModel) -> None:
    """Check that a model can be trained as the plan says.

    Raises:
        ValueError: it cannot; names the model and the field.
    """
    where = f"model {model.key}"
    _check_own(f"{where}: training", (plan.training, model.training), _OWN_OF_OPTIMISER)
    try:
        recipe = recipe_of_run(plan, model, rate=model.rates[0], seed=plan.seeds[0], steps=1)
    except TrainingRecipeError as error:
        raise ValueError(f"{where}: training.{error}") from error
    level = recipe.sentence_level
    if level.trained != "frozen" and level.blocks < recipe.max_blocks:
        raise ValueError(
            f"{where}: training.sentence_level.blocks is {level.blocks}, under the "
            f"{recipe.max_blocks} of max_blocks: a sentence level that is trained reads all blocks"
        )
    if recipe.terms.dimension:
        raise ValueError(f"{where}: training: a term channel is not compared")
    if any(objective.kind == "rerank" for objective in recipe.objectives):
        raise ValueError(f"{where}: training.objective: rerankers are not compared")
    if pretrains(recipe):
        raise ValueError(
            f"{where}: training.objective: {recipe.objectives[0].kind} is pretraining, which has a "
            "table of its own"
        )
    if model.pretraining is not None and level.trained == "frozen":
        raise ValueError(
            f"{where}: training.sentence_level: is frozen, and would not be what was pretrained"
        )


def _check_pretraining(plan: Plan, model: PlannedModel) -> None:
    """Check that a model can be pretrained as the plan says.

    Raises:
        ValueError: it cannot; names the model and the field.
    """
    where = f"model {model.key}: pretraining"
    if (plan.pretraining_seconds is None) == (plan.pretraining_steps is None):
        raise ValueError(f"{where}: takes pretraining_seconds or pretraining_steps of the plan")
    _check_own(where, (plan.pretraining, model.pretraining or {}), ("warm_up",))
    try:
        recipe = parse_training_recipe(pretraining_table(plan, model, steps=1))
    except TrainingRecipeError as error:
        raise ValueError(f"{where}.{error}") from error
    if not pretrains(recipe):
        raise ValueError(f"{where}.objective: must be of texts alone: wp, sp, wp+sp or reorder")
    if not reads_tokens_only(recipe):
        raise ValueError(
            f"{where}.sentence_level.blocks is {recipe.sentence_level.blocks}, under the "
            f"{recipe.max_blocks} of max_blocks: pretraining reads all blocks"
        )


def _check_own(
    where: str, tables: Sequence[Mapping[str, Any]], of_optimiser: Sequence[str]
) -> None:
    """Check that tables leave to the comparison what it sets."""
    for table in tables:
        own = [name for name in _OWN if name in table]
        own += [f"optimiser.{n}" for n in of_optimiser if n in table.get("optimiser", {})]
        if own:
            raise ValueError(f"{where}.{own[0]} is set by the comparison")

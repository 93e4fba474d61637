"""The plan of an experiment: a TOML file of models, their rates, and what papers report of them."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from training.errors import TrainingRecipeError
from training.export.create import Recipe
from training.models.ernie_doc import ErnieDoc
from training.recipe import (
    PositiveShare,
    RecipeTable,
    TrainingRecipe,
    check_recurrence,
    pretrains,
    reads_tokens_only,
)

T = TypeVar("T")
PLANS = Path(__file__).parent / "plans"
ENCODER_RECIPES = Path(__file__).parents[2] / "encoder" / "recipes"
# Fields of a training recipe that the experiment sets.
_SET = ("name", "steps", "seed", "validation_interval", "checkpoint_interval", "patience")
_SET_OF_OPTIMISER = ("document_rate", "sentence_rate", "warm_up")


class Budget(RecipeTable):
    """How much training a model gets.

    Attributes:
        seconds: of training steps over all of its runs, at the pace that is measured first.
        steps: of each run, instead.
    """

    seconds: PositiveFloat | None = None
    steps: PositiveInt | None = None

    @model_validator(mode="after")
    def _check(self) -> "Budget":
        if (self.seconds is None) == (self.steps is None):
            raise ValueError("takes seconds or steps")
        return self


class Reported(RecipeTable):
    """What a paper reports of a model: on which data, in which table, accuracy and F1 of pairs."""

    data: str
    source: str
    accuracy: PositiveShare
    f1: PositiveShare | None = None


class PlannedModel(RecipeTable):
    """A `[[model]]` table: an architecture with a loss.

    Attributes:
        key: names its files, and selects it.
        name: in tables.
        base: key of a model above that this is a variant of: its tables are merged into those.
        recipe: of the new checkpoint: the name of one in `encoder/recipes`, or a path relative to
            the plan.
        create: changes to that recipe; after `read_plan` the whole recipe with its changes.
        training: changes to the plan's training recipe.
        pretraining: changes to the plan's recipe of pretraining; a model without is not pretrained.
        rates: learning rates of the document level to try, ascending; a model without any is
            measured as it begins.
        sentence_rate_share: the learning rate of the sentence level by that of the document level.
        reported: what papers report.
    """

    key: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    name: str
    base: str | None = None
    recipe: str
    create: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    pretraining: dict[str, Any] | None = None
    rates: Annotated[tuple[PositiveFloat, ...], Field(strict=False)]
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
        name: of the experiment.
        budget: of the training of each model.
        seeds: of weights and batches. Rates are tried with the first one.
        validations: of a run, besides that before its first step.
        warm_up_share: of the steps of a run in which the rate rises.
        lengths: tokens of a document that are read, for quality by tokens read.
        training: fields of a training recipe that all models share.
        pretraining: fields of the recipe of pretraining that all pretrained models share.
        pretraining_budget: of each pretraining.
        models: the `[[model]]` tables; the first one of those compared is the reference.
    """

    name: str
    budget: Budget
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(strict=False, min_length=1)]
    validations: PositiveInt = 2
    warm_up_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    training: dict[str, Any]
    pretraining: dict[str, Any] = Field(default_factory=dict)
    pretraining_budget: Budget | None = None
    models: Annotated[tuple[PlannedModel, ...], Field(alias="model", strict=False, min_length=1)]

    @model_validator(mode="after")
    def _check_whole(self) -> "Plan":
        for what, values in (
            ("keys", [model.key for model in self.models]),
            ("names", [model.name for model in self.models]),
            ("seeds", self.seeds),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"two {what} are equal")
        for model in self.models:
            try:
                _check_model(self, model)
            except TrainingRecipeError as error:
                raise ValueError(f"model {model.key}: {error}") from error
        return self

    def choose(self, keys: Sequence[str] | None) -> tuple[PlannedModel, ...]:
        """Return the models of these keys, in the order of the plan; all if none are given."""
        known = {model.key: model for model in self.models}
        for key in keys or ():
            if key not in known:
                raise TrainingRecipeError(f"{key!r} is none of {', '.join(known)}")
        return tuple(model for model in self.models if keys is None or model.key in keys)


def read_plan(path: Path) -> Plan:
    """Read a plan, with the recipes that it names.

    Raises:
        TrainingRecipeError: a file is missing, or a field is unknown, missing or wrong; names it.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        models = table.get("model")
        if isinstance(models, list) and all(isinstance(model, dict) for model in models):
            table["model"] = _complete(models, path.parent)
        return Plan.parse(table)
    except (OSError, ValueError, TrainingRecipeError) as error:
        raise TrainingRecipeError(f"plan {path}: {error}") from error


def _complete(models: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Merge each model into its base, and its changes into the recipe that it names."""
    known: dict[str, dict[str, Any]] = {}
    complete = []
    for number, model in enumerate(models, start=1):
        if "base" in model:
            if model["base"] not in known:
                raise TrainingRecipeError(
                    f"model.{number}.base: {model['base']!r} is no model above it"
                )
            base = known[model["base"]]
            model = merge({k: v for k, v in base.items() if k != "reported"}, model)
        known[str(model.get("key"))] = model
        name, changes = model.get("recipe"), model.get("create", {})
        if isinstance(name, str) and isinstance(changes, dict):
            shipped = ENCODER_RECIPES / f"{name}.toml"
            recipe = shipped if shipped.is_file() else folder / name
            if not recipe.is_file():
                raise TrainingRecipeError(
                    f"model.{number}.recipe: there is no {name!r} in encoder/recipes, nor next to "
                    "the plan"
                )
            created = tomllib.loads(recipe.read_text(encoding="utf-8"))
            model = model | {"create": merge(created, changes)}
        complete.append(model)
    return complete


def training_table(
    plan: Plan, model: PlannedModel, *, rate: float, seed: int, steps: int
) -> dict[str, Any]:
    """Return the training recipe of a run, as a table; `rate` is that of the document level."""
    fixed = _fixed(plan, model.key, seed, steps)
    fixed["optimiser"] |= {
        "document_rate": rate,
        "sentence_rate": rate * model.sentence_rate_share,
    }
    return merge(merge(plan.training, model.training), fixed)


def pretraining_table(plan: Plan, model: PlannedModel, *, seed: int, steps: int) -> dict[str, Any]:
    """Return the recipe of the pretraining of a model, as a table."""
    fixed = _fixed(plan, f"{model.key}-pretraining", seed, steps)
    return merge(merge(plan.pretraining, model.pretraining or {}), fixed)


def recipe_of(plan: Plan, model: PlannedModel) -> TrainingRecipe:
    """Return the training recipe of a model, for what all of its runs have in common."""
    rate = model.rates[0] if model.rates else 1e-4
    return TrainingRecipe.parse(training_table(plan, model, rate=rate, seed=plan.seeds[0], steps=1))


def _fixed(plan: Plan, name: str, seed: int, steps: int) -> dict[str, Any]:
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


def _check_model(plan: Plan, model: PlannedModel) -> None:
    """Check that a model can be created, pretrained and trained as the plan says."""
    created = _parsed("create", lambda: Recipe.parse(model.create))
    _check_set("training", (plan.training, model.training), _SET_OF_OPTIMISER)
    recipe = _parsed("training", lambda: recipe_of(plan, model))
    frozen = recipe.sentence_level.trained == "frozen"
    if recipe.terms.dimension:
        raise TrainingRecipeError("training: a term channel is not compared")
    if pretrains(recipe):
        raise TrainingRecipeError(
            f"training.objective: {recipe.objectives[0].kind} is pretraining, which has a table of "
            "its own"
        )
    _check_reading("training", recipe, created, reads_tokens=not frozen)
    if model.pretraining is None:
        return
    if frozen:
        raise TrainingRecipeError(
            "training.sentence_level: is frozen, and would not be what was pretrained"
        )
    if plan.pretraining_budget is None:
        raise TrainingRecipeError("pretraining: takes a pretraining_budget of the plan")
    _check_set("pretraining", (plan.pretraining, model.pretraining), ("warm_up",))
    table = pretraining_table(plan, model, seed=plan.seeds[0], steps=1)
    pretraining = _parsed("pretraining", lambda: TrainingRecipe.parse(table))
    if not pretrains(pretraining):
        raise TrainingRecipeError(
            "pretraining.objective: must be of texts alone: wp, sp, wp+sp or reorder"
        )
    _check_reading("pretraining", pretraining, created, reads_tokens=True)


def _parsed(table: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except TrainingRecipeError as error:
        raise TrainingRecipeError(f"{table}.{error}") from error


def _check_reading(
    table: str, recipe: TrainingRecipe, created: Recipe, *, reads_tokens: bool
) -> None:
    """Check that a recipe reads no more than the model can, and all blocks where it must."""
    check_recurrence(recipe, recurrent=created.architecture == ErnieDoc.name)
    if recipe.max_blocks > created.max_blocks:
        raise TrainingRecipeError(
            f"{table}.max_blocks is {recipe.max_blocks}, and the model reads {created.max_blocks}"
        )
    if reads_tokens and not reads_tokens_only(recipe):
        raise TrainingRecipeError(
            f"{table}.sentence_level.blocks is {recipe.sentence_level.blocks}, under the "
            f"{recipe.max_blocks} of max_blocks: a sentence level that is trained reads all blocks"
        )


def _check_set(
    where: str, tables: Sequence[Mapping[str, Any]], of_optimiser: Sequence[str]
) -> None:
    """Check that tables leave to the experiment what it sets."""
    for table in tables:
        given = [name for name in _SET if name in table]
        given += [f"optimiser.{n}" for n in of_optimiser if n in table.get("optimiser", {})]
        if given:
            raise TrainingRecipeError(f"{where}.{given[0]} is set by the experiment")

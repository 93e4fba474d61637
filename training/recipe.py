"""A training recipe: all that decides a run, except for its data."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from encoder.export.recipe_file import RecipeTable, parse_recipe, read_recipe_file
from training.errors import TrainingRecipeError
from training.recipe_tables.objectives import (
    ALIGNMENT,
    CLASSES,
    DISTIL_BLOCKS,
    AnyObjective,
    Share,
)
from training.recipe_tables.settings import OptimiserRecipe, SentenceLevelRecipe, TermRecipe

RECIPES = Path(__file__).parent / "recipes"  # those that ship


class TrainingRecipe(RecipeTable):
    """What decides a run, except for its data and the checkpoint it starts from.

    Attributes:
        name: for people.
        steps: of the optimiser, at most.
        documents: of one batch.
        objectives: the `[[objective]]` tables, at least one, of different names.
        seed: of every random choice.
        chunk: documents of one forward pass (`training.loop.cached_backward`).
        max_blocks: sentence blocks of a document that training reads.
        accumulation: batches of one step.
        dropout: share of activations that a step drops, in every layer.
        precision: "bf16" computes the encoder in bfloat16; weights and losses stay fp32.
        validation_interval: steps between validations.
        checkpoint_interval: steps between checkpoints of the run.
        patience: consecutive validations without a better figure that end the run.
        optimiser: rates and their schedule.
        sentence_level: what of it is trained.
        terms: the term channel that the model is given.
    """

    name: str
    steps: PositiveInt
    documents: PositiveInt
    objectives: Annotated[tuple[AnyObjective, ...], Field(alias="objective", strict=False)] = ()
    seed: NonNegativeInt = 0
    chunk: PositiveInt = 64
    max_blocks: PositiveInt = 64
    accumulation: PositiveInt = 1
    dropout: Share = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    validation_interval: PositiveInt = 100
    checkpoint_interval: PositiveInt = 100
    patience: PositiveInt = 10
    optimiser: OptimiserRecipe = OptimiserRecipe()
    sentence_level: SentenceLevelRecipe = SentenceLevelRecipe()
    terms: TermRecipe = TermRecipe()

    @model_validator(mode="after")
    def _check_whole(self) -> "TrainingRecipe":
        """Check what one table demands of another."""
        if not self.objectives:
            raise ValueError("it has no [[objective]]")
        if len({objective.name for objective in self.objectives}) < len(self.objectives):
            raise ValueError("two objectives have one name: give each a `name`")
        if all(objective.weight == 0 for objective in self.objectives):
            raise ValueError("every objective has weight 0: there is nothing to learn")
        kinds = {objective.kind for objective in self.objectives}
        if "rerank" in kinds:
            if len(self.objectives) > 1:
                raise ValueError('objective "rerank" trains another model than the others do')
            return self  # a reranker reads whole texts, not blocks
        self._check_sentence_level(kinds)
        return self

    def _check_sentence_level(self, kinds: Set[str]) -> None:
        level = self.sentence_level
        frozen = level.trained == "frozen"
        if frozen != (level.blocks == 0):
            raise ValueError("sentence_level.blocks goes with a trained sentence level alone")
        for kind in ("wp", "wp+sp", "reorder", DISTIL_BLOCKS):
            if kind in kinds and frozen:
                raise ValueError(f'objective "{kind}" trains the sentence level, which is frozen')
        if self.aligns and frozen:
            raise ValueError('similarity = "alignment" trains the sentence level, which is frozen')
        if self.distils and len(kinds) > 1:
            raise ValueError(
                f'objective "{DISTIL_BLOCKS}" learns the vectors that the others would change'
            )
        if level.changes_layers and not self.distils:
            name = "kept_layers" if level.kept_layers else "pooled_layers"
            raise ValueError(
                f'sentence_level.{name} goes with the objective "{DISTIL_BLOCKS}" alone'
            )

    @property
    def learns_from_classes(self) -> bool:
        """Whether an objective takes the class of a document as its label."""
        return any(one.parameters.get("groups") == CLASSES for one in self.objectives)

    @property
    def distils(self) -> bool:
        """Whether it learns the block vectors of its start."""
        return any(one.kind == DISTIL_BLOCKS for one in self.objectives)

    @property
    def aligns(self) -> bool:
        """Whether an objective trains the alignment of blocks."""
        return any(one.parameters.get("similarity") == ALIGNMENT for one in self.objectives)


def read_training_recipe(path: Path) -> TrainingRecipe:
    """Read a recipe file.

    Raises:
        TrainingRecipeError: the file is missing, or a field is unknown, missing or wrong; the
            message names it.
    """
    return read_recipe_file(path, TrainingRecipe, TrainingRecipeError)


def parse_training_recipe(table: Mapping[str, Any]) -> TrainingRecipe:
    """Make a recipe of what a TOML file holds.

    Raises:
        TrainingRecipeError: a field is unknown, missing or wrong; the message names it.
    """
    return parse_recipe(table, TrainingRecipe, TrainingRecipeError)

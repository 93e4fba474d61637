"""Recipes: TOML files that pydantic models describe, here those of training runs.

A training recipe is all that decides a run, except for its data.
"""

import tomllib
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from training.errors import TrainingRecipeError

if TYPE_CHECKING:
    from training.models.architecture import EncoderConfig


class RecipeTable(BaseModel):
    """A table of a recipe: every field is known, of its own type and finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True
    )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a TOML file; an error names the file, the field and what it must be."""
        try:
            return cls.parse(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TrainingRecipeError) as error:
            raise TrainingRecipeError(f"recipe {path}: {error}") from error

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Self:
        """Make it of what a TOML file holds."""
        try:
            return configured(cls.model_validate, table)
        except ValueError as error:
            raise TrainingRecipeError(str(error)) from error


C = TypeVar("C")


def configured(make: Callable[..., C], *args: Any, **fields: Any) -> C:
    """Make a recipe or a configuration; what is wrong is a ValueError of one line."""
    try:
        return make(*args, **fields)
    except ValidationError as error:
        explained = map(_explain, error.errors(include_url=False))
        raise ValueError("; ".join(explained)) from error


def _explain(problem: ErrorDetails) -> str:
    """Return the path of a wrong field, tables of an array counted from 1, and what it must be."""
    path = ".".join(str(part + 1 if isinstance(part, int) else part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    value = problem["input"]
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        message = "unknown field"
    elif path and isinstance(value, str | int | float):
        message += f", not {value!r}"
    return f"{path}: {message}" if path else message


DISTIL_BLOCKS = "distil-blocks"  # kind of an objective

Share = Annotated[float, Field(ge=0, lt=1)]
PositiveShare = Annotated[float, Field(gt=0, lt=1)]
Temperature = PositiveFloat | Literal["learned"]


class ObjectiveRecipe(RecipeTable):
    """One `[[objective]]` table; a subclass for each kind adds its parameters.

    Attributes:
        kind: what is learned from, and its name in curves and messages.
        weight: of its loss in the sum.
    """

    kind: str
    weight: NonNegativeFloat = 1.0

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of its kind."""
        return self.model_dump(exclude={"kind", "weight"})


class PairsRecipe(ObjectiveRecipe):
    """Labelled pairs.

    Attributes:
        loss: "cross_entropy" (SMITH, section 4.3), or "cosine" (CoLDE's ablation 4.5.3).
    """

    kind: Literal["pairs"] = "pairs"
    loss: Literal["cross_entropy", "cosine"] = "cross_entropy"


class ContrastiveRecipe(ObjectiveRecipe):
    """Linked documents, or halves of a document.

    Attributes:
        temperature: of the similarities.
        hard_negatives: lexical neighbours of each query that are candidates, too.
    """

    kind: Literal["links", "halves"]
    temperature: Temperature = 0.05
    hard_negatives: NonNegativeInt = 0


class SupervisedContrastiveRecipe(ObjectiveRecipe):
    """Sections of documents that belong together, by links or by labelled pairs.

    Attributes:
        temperature: of the similarities.
        parts: sections of a document.
        groups: what gives two documents one label.
    """

    kind: Literal["supcon"] = "supcon"
    temperature: Temperature = 0.1
    parts: PositiveInt = 2
    groups: Literal["links", "pairs"] = "links"


class SectionsRecipe(ObjectiveRecipe):
    """Sections of one document, each of which needs another."""

    kind: Literal["sections"] = "sections"
    temperature: Temperature = 0.1
    parts: Annotated[int, Field(ge=2)] = 2


class DistillationRecipe(ObjectiveRecipe):
    """The lexical similarities of documents."""

    kind: Literal["distil"] = "distil"
    teacher_temperature: PositiveFloat = 0.05
    temperature: Temperature = 0.05


class BlockDistillationRecipe(ObjectiveRecipe):
    """The block vectors that the start of the run gives."""

    kind: Literal["distil-blocks"] = "distil-blocks"


class MaskedWordsRecipe(ObjectiveRecipe):
    """Words of a block."""

    kind: Literal["wp"] = "wp"
    share: PositiveShare = 0.15


class MaskedBlocksRecipe(ObjectiveRecipe):
    """Sentence blocks of a document."""

    kind: Literal["sp"] = "sp"
    masked_blocks: PositiveInt = 2


class JointRecipe(ObjectiveRecipe):
    """Words of blocks and whole blocks of the same documents (SMITH, equation 7)."""

    kind: Literal["wp+sp"] = "wp+sp"
    share: PositiveShare = 0.15
    masked_blocks: PositiveInt = 2


class ReorderRecipe(ObjectiveRecipe):
    """The order of the chunks of a document, and words of all of its segments.

    Attributes:
        chunks: of a document, at most (m); there are 1! + ... + m! classes.
        share: of the words that are predicted; 0 for none.
    """

    kind: Literal["reorder"] = "reorder"
    chunks: Annotated[int, Field(ge=2, le=6)] = 3
    share: Share = 0.15


class RerankRecipe(ObjectiveRecipe):
    """Pairs of documents that a reranker reads together.

    Attributes:
        candidates: of a query, from which the other pairs are sampled.
        random: share of random documents among the other pairs.
        tokens: of a pair, at most.
        pairs: "sampled" trains on as many matches as others; "given" on the labelled pairs alone,
            in the share of matches that they have.
    """

    kind: Literal["rerank"] = "rerank"
    pairs: Literal["sampled", "given"] = "sampled"
    candidates: PositiveInt = 30
    random: Share = 0.5
    tokens: PositiveInt = 256


AnyObjective = Annotated[
    PairsRecipe
    | ContrastiveRecipe
    | SupervisedContrastiveRecipe
    | SectionsRecipe
    | DistillationRecipe
    | BlockDistillationRecipe
    | MaskedWordsRecipe
    | MaskedBlocksRecipe
    | JointRecipe
    | ReorderRecipe
    | RerankRecipe,
    Field(discriminator="kind"),
]


class OptimiserRecipe(RecipeTable):
    """The `[optimiser]` table: AdamW.

    Attributes:
        document_rate: learning rate of the document level and of the heads.
        sentence_rate: learning rate of the sentence level where it is trained.
        term_rate: learning rate of the term channel.
        warm_up: steps in which the rates rise from 0.
        decay: how they fall to 0 until the last step.
        weight_decay: of the matrices of linear layers; nothing else decays. 0 is Adam.
        epsilon: added to the root of the mean square of the gradient.
        gradient_clip: largest norm of the gradient.
    """

    document_rate: NonNegativeFloat = 1e-3
    sentence_rate: NonNegativeFloat = 2e-5
    term_rate: NonNegativeFloat = 1e-3
    warm_up: NonNegativeInt = 0
    decay: Literal["linear", "cosine"] = "linear"
    weight_decay: NonNegativeFloat = 0.01
    epsilon: PositiveFloat = 1e-8
    gradient_clip: PositiveFloat = 1.0


class SentenceLevelRecipe(RecipeTable):
    """The `[sentence_level]` table.

    Attributes:
        trained: "frozen"; "last": the last layers; "all": token embedding and all layers.
        layers: how many with "last"; not given otherwise.
        blocks: random blocks of a document that a step computes from tokens; not given with
            "frozen".
        kept_layers: numbers of the layers of the start, from 0, that the model has; by default
            all. For the objective "distil-blocks", as the next two are.
        pooled_layers: how many of these, the last ones, read averages of neighbouring tokens.
        pooled_tokens: tokens of an average; given with `pooled_layers` alone.
    """

    trained: Literal["frozen", "last", "all"] = "frozen"
    layers: PositiveInt = Field(default=0)
    blocks: PositiveInt = Field(default=0)
    kept_layers: Annotated[tuple[NonNegativeInt, ...], Field(strict=False)] = ()
    pooled_layers: NonNegativeInt = 0
    pooled_tokens: PositiveInt = 1

    @property
    def changes_layers(self) -> bool:
        """Whether the model has other layers than the start, or layers that read otherwise."""
        return bool(self.kept_layers or self.pooled_layers)

    @model_validator(mode="after")
    def _check_layers(self) -> "SentenceLevelRecipe":
        if (self.pooled_layers > 0) != (self.pooled_tokens > 1):
            raise ValueError("pooled_tokens is above 1 with pooled_layers, and only then")
        if list(self.kept_layers) != sorted(set(self.kept_layers)):
            raise ValueError("kept_layers must ascend, each number once")
        if (self.trained == "last") != (self.layers > 0):
            raise ValueError('layers goes with trained = "last", and only then')
        return self


class TermRecipe(RecipeTable):
    """The `[terms]` table: the term channel of a model that starts without one.

    Attributes:
        dimension: dimensions of the document vector that it gets, beside those of the blocks;
            0 for no channel.
        buckets: rows of the table that words of several WordPieces share.
        span: dimensions of latent semantic analysis that training chooses from.
        power: of the singular values by which the dimensions of the span are divided.
        documents: that the span is fitted on, at most.
        balance: the initial weight of the blocks beside the terms.
        hashed_dimension: dimensions of hashed words beside these, not learned; 0 for none.
        hashed_balance: the weight of the hashed words beside the terms; not trained.
    """

    dimension: NonNegativeInt = 0
    buckets: NonNegativeInt = 16_384
    span: PositiveInt = 512
    power: NonNegativeFloat = 0.25
    documents: PositiveInt = 6_000
    balance: PositiveFloat = 0.6
    hashed_dimension: NonNegativeInt = 0
    hashed_balance: PositiveFloat = 1.0

    @model_validator(mode="after")
    def _check_dimensions(self) -> "TermRecipe":
        """Check that every dimension has something to begin as."""
        if not self.dimension:
            if self.hashed_dimension:
                raise ValueError("hashed_dimension takes a dimension, which is 0")
            return self
        if self.dimension > self.span:
            raise ValueError(
                f"dimension is {self.dimension}, and must not be above span, which is {self.span}"
            )
        if self.documents <= self.span:
            raise ValueError("documents must be above span, which is fitted on them")
        return self


RECIPES = Path(__file__).parent / "recipes"  # those that ship


class TrainingRecipe(RecipeTable):
    """What decides a run, except for its data and the checkpoint it starts from.

    Attributes:
        name: for people.
        steps: of the optimiser, at most.
        documents: of one batch.
        objectives: the `[[objective]]` tables, at least one, of different kinds.
        seed: of every random choice.
        chunk: documents of one forward pass (`training.objectives.vectors_task`).
        max_blocks: sentence blocks of a document that training reads.
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
        kinds = {objective.kind for objective in self.objectives}
        if len(kinds) < len(self.objectives):
            raise ValueError("two objectives are of one kind")
        if all(objective.weight == 0 for objective in self.objectives):
            raise ValueError("every objective has weight 0: there is nothing to learn")
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
    def distils(self) -> bool:
        """Whether it learns the block vectors of its start."""
        return any(objective.kind == DISTIL_BLOCKS for objective in self.objectives)


# Kinds that learn from texts alone, those that distil by way of the teacher's vectors of them.
SELF_SUPERVISED = frozenset({"wp", "sp", "wp+sp", "reorder", DISTIL_BLOCKS})


def pretrains(recipe: TrainingRecipe) -> bool:
    """Say whether a recipe learns nothing but what texts say of themselves."""
    return all(objective.kind in SELF_SUPERVISED for objective in recipe.objectives)


def reads_tokens_only(recipe: TrainingRecipe) -> bool:
    """Say whether a step reads all that it needs as tokens, so that no block vector is stored."""
    if recipe.distils:
        return False  # block vectors are what it learns
    words_alone = {objective.kind for objective in recipe.objectives} == {"wp"}
    return words_alone or recipe.max_blocks <= recipe.sentence_level.blocks


def check_objective(objective: ObjectiveRecipe, config: "EncoderConfig") -> None:
    """Check that a model can learn an objective."""
    if objective.kind in ("sp", "wp+sp") and not config.predicts_blocks:
        raise TrainingRecipeError(
            f"objective {objective.kind}: this architecture cannot predict masked sentence blocks"
        )
    sections = getattr(config, "max_sections", None)  # of a CoLDE
    if sections is not None and objective.parameters.get("parts", 0) > sections:
        raise TrainingRecipeError(
            f"objective {objective.kind}: parts is above the {sections} sections that the model "
            "has embeddings for"
        )


def check_recurrence(recipe: TrainingRecipe, *, recurrent: bool) -> None:
    """Check that a recipe fits an encoder whose blocks depend on the whole document, or not."""
    kinds = {objective.kind for objective in recipe.objectives}
    of_blocks = kinds & {"sp", "wp+sp", DISTIL_BLOCKS}
    level = recipe.sentence_level
    reason = None
    if not recurrent:
        if "reorder" in kinds:
            reason = 'objective "reorder" pretrains a recurrent encoder, such as an ernie-doc'
    elif level.trained == "frozen":
        reason = (
            'sentence_level.trained = "frozen" takes stored block vectors, which a recurrent '
            'encoder has not: set "all" or "last", with blocks = max_blocks'
        )
    elif level.blocks < recipe.max_blocks:
        reason = (
            f"sentence_level.blocks is {level.blocks}, under the {recipe.max_blocks} of "
            "max_blocks: a recurrent encoder reads every block of a document"
        )
    elif of_blocks:
        reason = (
            f'objective "{max(of_blocks)}" takes vectors of lone blocks, which a recurrent encoder '
            "has not"
        )
    elif recipe.terms.dimension:
        reason = "terms.dimension: a recurrent encoder has no term channel"
    if reason is not None:
        raise TrainingRecipeError(f"recipe {recipe.name}: {reason}")

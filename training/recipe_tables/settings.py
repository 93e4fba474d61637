"""The tables of a training recipe that are not objectives: what is trained, and how."""

from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from encoder.export.recipe_file import RecipeTable
from training.recipe_tables.objectives import Share


class OptimiserRecipe(RecipeTable):
    """The `[optimiser]` table: AdamW.

    Attributes:
        document_rate: learning rate of the document level and of the heads.
        sentence_rate: learning rate of the sentence level where it is trained.
        term_rate: learning rate of the term channel.
        warm_up: steps in which the rates rise from 0.
        decay: how they fall to 0 until the last step.
        weight_decay: of the matrices of linear layers; nothing else decays. 0 is Adam.
        betas: of the running means of the gradient and of its square.
        epsilon: added to the root of the latter.
        gradient_clip: largest norm of the gradient.
    """

    document_rate: NonNegativeFloat = 1e-3
    sentence_rate: NonNegativeFloat = 2e-5
    term_rate: NonNegativeFloat = 1e-3
    warm_up: NonNegativeInt = 0
    decay: Literal["linear", "cosine"] = "linear"
    weight_decay: NonNegativeFloat = 0.01
    betas: Annotated[tuple[Share, Share], Field(strict=False)] = (0.9, 0.999)
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
        residual_dimension: how many of them begin as a mix of the residual.
        buckets: rows of the table that words of several WordPieces share.
        span: dimensions of latent semantic analysis that training chooses from.
        residual: random projections of what lies outside the span, likewise.
        power: of the singular values by which the dimensions of the span are divided.
        documents: that the span is fitted on, at most.
        balance: the initial weight of the blocks beside the terms.
        hashed_dimension: dimensions of hashed words beside these, not learned; 0 for none.
        hashed_balance: the weight of the hashed words beside the terms; not trained.
    """

    dimension: NonNegativeInt = 0
    residual_dimension: NonNegativeInt = 0
    buckets: NonNegativeInt = 16_384
    span: PositiveInt = 512
    residual: NonNegativeInt = 512
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
        if self.residual_dimension > self.dimension:
            raise ValueError("residual_dimension is part of dimension, and must not be above it")
        mixed = max(self.residual_dimension, self.dimension - self.span)
        if mixed > self.residual:
            raise ValueError(
                f"{mixed} of {self.dimension} dimensions begin as a mix of the residual, "
                f"which has {self.residual}: raise residual or span"
            )
        if self.documents <= self.span:
            raise ValueError("documents must be above span, which is fitted on them")
        return self

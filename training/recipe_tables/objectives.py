"""The `[[objective]]` tables of a training recipe, one class for each kind."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from encoder.export.recipe_file import RecipeTable

ALIGNMENT = "alignment"  # of blocks, as the similarity of two documents
CLASSES = "classes"  # of documents, as their labels
DISTIL_BLOCKS = "distil-blocks"  # kind of an objective

Share = Annotated[float, Field(ge=0, lt=1)]
PositiveShare = Annotated[float, Field(gt=0, lt=1)]
Temperature = PositiveFloat | Literal["learned"]


class ObjectiveRecipe(RecipeTable):
    """One `[[objective]]` table; a subclass for each kind adds its parameters.

    Attributes:
        kind: what is learned from.
        name: in curves and messages; the kind where the table gives none.
        weight: of its loss in the sum.
    """

    kind: str
    name: str = ""
    weight: NonNegativeFloat = 1.0

    @model_validator(mode="before")
    @classmethod
    def _name_by_kind(cls, table: Any) -> Any:
        return {"name": table.get("kind"), **table} if isinstance(table, dict) else table

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of its kind."""
        return self.model_dump(exclude={"kind", "name", "weight"})


class PairsRecipe(ObjectiveRecipe):
    """Labelled pairs.

    Attributes:
        loss: "cross_entropy" (SMITH, section 4.3), or "cosine" (CoLDE's ablation 4.5.3).
        amplifier: of the cosine, with "cross_entropy".
    """

    kind: Literal["pairs"] = "pairs"
    loss: Literal["cross_entropy", "cosine"] = "cross_entropy"
    amplifier: PositiveFloat = 6.0

    @model_validator(mode="after")
    def _check_amplifier(self) -> "PairsRecipe":
        if "amplifier" in self.model_fields_set and self.loss == "cosine":
            raise ValueError('amplifier goes with loss = "cross_entropy", and only then')
        return self


class ContrastiveRecipe(ObjectiveRecipe):
    """Linked documents, or halves of a document.

    Attributes:
        temperature: of the similarities.
        hard_negatives: lexical neighbours of each query that are candidates, too.
        similarity: of two documents: the cosine of their vectors, or the alignment of their blocks,
            which trains the sentence level alone.
        lexical_weight: of the lexical similarity in half of the loss, with "alignment".
    """

    kind: Literal["links", "halves"]
    temperature: Temperature = 0.05
    hard_negatives: NonNegativeInt = 0
    similarity: Literal["vector", "alignment"] = "vector"
    lexical_weight: Share = 0.0

    @model_validator(mode="after")
    def _check_similarity(self) -> "ContrastiveRecipe":
        if self.lexical_weight and self.similarity != ALIGNMENT:
            raise ValueError('lexical_weight goes with similarity = "alignment", and only then')
        return self


class DropRecipe(ObjectiveRecipe):
    """Two views of a document, each without a share of its blocks."""

    kind: Literal["drop"] = "drop"
    temperature: Temperature = 0.05
    hard_negatives: NonNegativeInt = 0
    share: PositiveShare = 0.5


class SupervisedContrastiveRecipe(ObjectiveRecipe):
    """Sections of documents that belong together, by links, by labelled pairs or by their class.

    Attributes:
        temperature: of the similarities.
        parts: sections of a document.
        groups: what gives two documents one label.
        documents_per_class: with "classes", how many documents of a class a batch takes at a time.
    """

    kind: Literal["supcon"] = "supcon"
    temperature: Temperature = 0.1
    parts: PositiveInt = 2
    groups: Literal["links", "pairs", "classes"] = "links"
    documents_per_class: Annotated[int, Field(ge=2)] = 4

    @model_validator(mode="after")
    def _check_groups(self) -> "SupervisedContrastiveRecipe":
        if "documents_per_class" in self.model_fields_set and self.groups != CLASSES:
            raise ValueError('documents_per_class goes with groups = "classes", and only then')
        return self


class SectionsRecipe(ObjectiveRecipe):
    """Sections of one document, each of which needs another."""

    kind: Literal["sections"] = "sections"
    temperature: Temperature = 0.1
    parts: Annotated[int, Field(ge=2)] = 2


class DistillationRecipe(ObjectiveRecipe):
    """The similarities of a teacher."""

    kind: Literal["distil"] = "distil"
    teacher: Literal["lexical"] = "lexical"
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
        positives: share of matches among the pairs of a batch.
        candidates: of a query, from which the other pairs are sampled.
        random: share of random documents among the other pairs.
        tokens: of a pair, at most.
        pairs: "given" trains on the labelled pairs alone, and samples no other ones.
    """

    kind: Literal["rerank"] = "rerank"
    pairs: Literal["sampled", "given"] = "sampled"
    positives: PositiveShare = 0.5
    candidates: PositiveInt = 30
    random: Share = 0.5
    tokens: PositiveInt = 256


AnyObjective = Annotated[
    PairsRecipe
    | ContrastiveRecipe
    | DropRecipe
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

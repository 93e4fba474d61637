"""What creation, export and training need to know of an architecture.

An architecture is a frozen configuration and an `EncoderModel` that names it. One line in
`training/models/registry.py` makes it known.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

import pydantic.dataclasses
import torch
from pydantic import ConfigDict, Field, PositiveInt
from torch import Tensor, nn

from training.errors import TrainingRecipeError
from training.models.layers import BlockEncoder, TokenEncoder, initialise_as_bert
from training.models.weights import load_bert_into

if TYPE_CHECKING:
    from training.recipe import TermRecipe


class OnDevice:
    """A dataclass of tensors and of such dataclasses, each of which may be None."""

    __slots__ = ()

    def to(self, device: torch.device) -> Self:
        """Return it on a device."""
        itself: Any = self
        values = {field.name: getattr(self, field.name) for field in fields(itself)}
        moved = {name: value.to(device) for name, value in values.items() if value is not None}
        found: Self = replace(itself, **moved)
        return found


@dataclass(frozen=True, slots=True)
class Sections(OnDevice):
    """Where the rows of a batch of sections belong.

    Attributes:
        numbers: [D] the number of each section within its document, from 0.
        successors: [D] the row of the section that follows it in its document; the last section
            is followed by the first.
    """

    numbers: Tensor
    successors: Tensor


STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # of configurations
Share = Annotated[float, Field(ge=0, lt=1)]


@pydantic.dataclasses.dataclass(frozen=True, slots=True, config=STRICT)
class EncoderConfig:
    """What every configuration of an encoder has; fields of its own come on top.

    A value that is no size or choice is a `pydantic.ValidationError`.

    Attributes:
        vocabulary_size: rows of the token embedding.
        block_length: tokens of a sentence block, special tokens included.
        max_blocks: sentence blocks that are read of a document.
        hidden_size: width of a block vector (H).
        dimension: width of the document vector.
        dropout: share of activations dropped in training.
        layer_norm_epsilon: of layer normalisation, BERT's.
        intermediate_size: width of the feed-forward layers.
        attention_heads: heads of each Transformer layer.
        sentence_layers: layers of the sentence level.
        predicts_blocks: whether the document level has states that masked blocks are predicted
            from.
    """

    vocabulary_size: PositiveInt = 30_522
    block_length: PositiveInt = 512
    max_blocks: PositiveInt = 64
    hidden_size: PositiveInt = 768
    dimension: PositiveInt = 768
    dropout: Share = 0.1
    layer_norm_epsilon: float = 1e-12
    intermediate_size: PositiveInt = 3_072
    attention_heads: PositiveInt = 12
    sentence_layers: PositiveInt = 12

    predicts_blocks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.hidden_size % self.attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of {self.attention_heads} heads"
            )


class TrainableModel(nn.Module, ABC):
    """What the training loop needs of a model."""

    @property
    @abstractmethod
    def token_encoder(self) -> TokenEncoder:
        """The part that reads tokens, which has a separate learning rate."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device


class EncoderModel(TrainableModel):
    """One tower of a Siamese pair, in two modules because each is exported to a separate graph.

    Attributes:
        name: in recipes and checkpoints.
        configuration: its class; raises ValueError and TypeError where fields are wrong.
        block_level: class of the block encoder.
        document_level: class of the document encoder.
        config: sizes and choices.
        block_encoder: token ids [N, T] and their mask [N, T] -> block vectors [N, H]; of an
            `ErnieDoc` one step, with a memory.
        document_encoder: block vectors [D, S, H], their mask [D, S], and `Sections` of a CoLDE or
            term features, which may be left out -> document vectors [D, dimension] of unit norm.
    """

    name: ClassVar[str]
    configuration: ClassVar[type[Any]]
    block_level: ClassVar[type[Any]]
    document_level: ClassVar[type[Any]]
    config: EncoderConfig
    block_encoder: TokenEncoder
    document_encoder: nn.Module

    def __init__(self, config: EncoderConfig) -> None:
        """Make a model with random weights."""
        super().__init__()
        self.config = config
        self.block_encoder = self.block_level(config)
        self.document_encoder = self.document_level(config)
        self.apply(initialise_as_bert)

    def load_bert(self, folder: Path) -> None:
        """Copy the weights of a folder with a BERT checkpoint into the sentence level."""
        load_bert_into(cast(BlockEncoder, self.block_encoder), folder)

    def begin_as_mean(self) -> None:
        """Set the document level so that its output is the normalised mean of the block vectors.

        Raises ValueError where the configuration does not allow it.
        """
        raise ValueError(f"begin_as_mean: no {self.name} can begin as the mean")

    @classmethod
    def with_term_channel(cls, config: Any, terms: "TermRecipe", features: int) -> EncoderConfig:
        """Give a configuration the term channel of a recipe, with so many features of the table."""
        raise TrainingRecipeError(f"[terms]: a {cls.name} has no term channel")

    @property
    def token_encoder(self) -> TokenEncoder:
        """The sentence level."""
        return self.block_encoder

    @property
    def section_reader(self) -> nn.Module | None:
        """What reads a section of a document and the next one, a separate graph.

        Block vectors of the section [S, H], its number [], those of the next section [T, H], its
        number [] -> section vector [dimension] of unit norm, and, where the model has it, the
        attention of the blocks [S, T]. None where the model has no sections.
        """
        return None

"""Make a new checkpoint from a recipe: weights, configuration and tokenizer, no graphs yet."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field, PositiveInt, model_validator
from tokenizers import Tokenizer, pre_tokenizers
from torch import nn

from encoder.blocks import LongSentence
from encoder.checkpoint import (
    TOKENIZER,
    Checkpoint,
    load_checkpoint,
    write_config,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.reranker.checkpoint import PairShape, RerankerCheckpoint, load_reranker_checkpoint
from training.models.architecture import EncoderConfig, EncoderModel
from training.models.match_ignition import (
    MatchIgnition,
    MatchIgnitionConfig,
    load_bert_into_pairs,
)
from training.models.registry import ENCODERS
from training.models.weights import (
    find_bert,
    load_weights,
    read_bert_config,
    save_weights,
    sizes_of_bert,
)
from training.recipe import RecipeTable, configured

_CHARACTERS_A_WORD = 100  # longer ones would become one unknown token


def _known_encoder(name: str) -> str:
    if name not in ENCODERS:
        raise ValueError(f"unknown architecture; known are {', '.join(ENCODERS)}")
    return name


class Recipe(RecipeTable):
    """The recipe of a new checkpoint; see `Checkpoint` and `training.models`."""

    name: str
    architecture: Annotated[str, AfterValidator(_known_encoder)]
    block_length: PositiveInt
    max_blocks: PositiveInt
    long_sentence: LongSentence
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")]
    dimension: PositiveInt
    initialise_from_bert: bool
    begin_as_mean: bool
    model: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_model(self) -> "Recipe":
        """Check that `[model]` is of this architecture, and its values where all are here."""
        config = ENCODERS[self.architecture].configuration
        if unknown := self.model.keys() - signature(config).parameters.keys():
            raise ValueError(
                f"model.{min(unknown)}: unknown field of the architecture {self.architecture}"
            )
        if not self.initialise_from_bert:  # whose sizes are others
            _configure(self)
        return self


class RerankerRecipe(RecipeTable):
    """The recipe of a new reranker; see `PairShape` and `training.models.match_ignition`."""

    name: str
    architecture: Literal["match-ignition"]
    pair: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict)


def is_for_reranker(path: Path) -> bool:
    """Whether a recipe names the architecture of a reranker; not if it cannot be read."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return table.get("architecture") == "match-ignition"


def create_checkpoint(recipe: Recipe, bert: str, directory: Path, *, seed: int = 0) -> Checkpoint:
    """Write weights, configuration and tokenizer of a new checkpoint.

    Args:
        recipe: sizes and choices.
        bert: folder or hub name of a BERT-architecture checkpoint: the tokenizer, and where the
            recipe says so the weights of the sentence level.
        directory: made where it is missing.
        seed: of the random weights; equal seeds give equal fingerprints.
    """
    folder = find_bert(bert)
    tokenizer = tokenizer_of(folder)
    sizes: dict[str, Any] = {"vocabulary_size": tokenizer.get_vocab_size()}
    if recipe.initialise_from_bert:
        sizes = sizes_of_bert(read_bert_config(folder))
    torch.manual_seed(seed)
    try:
        model = ENCODERS[recipe.architecture](_configure(recipe, **sizes))
        if recipe.initialise_from_bert:
            model.load_bert(folder)
        if recipe.begin_as_mean:
            model.begin_as_mean()
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"recipe {recipe.name}: {error}") from error
    of_model = {"dimension", "initialise_from_bert", "begin_as_mean", "model"}
    config = {
        **recipe.model_dump(exclude=of_model),
        **_special_tokens(tokenizer),
        "block_dimension": model.config.hidden_size,
        "dimension": model.config.dimension,
        "model": _without(model.config, "block_length", "max_blocks", "dimension"),
    }
    write_files(directory, tokenizer.to_str(pretty=True).encode(), model, config)
    return load_checkpoint(directory)


def _without(config: Any, *names: str) -> dict[str, Any]:
    """Return the fields of a configuration but those that stand elsewhere in the file."""
    return {name: value for name, value in asdict(config).items() if name not in names}


def write_files(
    directory: Path, tokenizer: bytes, model: nn.Module, config: Mapping[str, Any]
) -> None:
    """Write tokenizer, weights and configuration of a checkpoint, no graphs yet."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / TOKENIZER).write_bytes(tokenizer)
    save_weights(model, directory)
    write_config(directory, config)
    write_manifest(directory)


def load_model(checkpoint: Checkpoint) -> EncoderModel:
    """Load the model of a checkpoint with its weights, ready to encode (evaluation mode)."""

    def make() -> EncoderModel:
        config = model_config(checkpoint)
        return ENCODERS[checkpoint.architecture](config)

    return load_weights(make, checkpoint.directory)


def model_config(checkpoint: Checkpoint) -> EncoderConfig:
    """Return the architecture's configuration of a checkpoint."""
    if checkpoint.architecture not in ENCODERS:
        raise CheckpointError(
            f"{checkpoint.directory}: unknown architecture {checkpoint.architecture!r}"
        )
    return _configure(checkpoint)


def _configure(source: Recipe | Checkpoint, **sizes: Any) -> EncoderConfig:
    """Make the configuration of an architecture; `sizes` hold where `[model]` says nothing."""
    config: EncoderConfig = configured(
        ENCODERS[source.architecture].configuration,
        block_length=source.block_length,
        max_blocks=source.max_blocks,
        dimension=source.dimension,
        **(sizes | dict(source.model)),
    )
    return config


def create_reranker(recipe: RerankerRecipe, bert: str, directory: Path) -> RerankerCheckpoint:
    """Write weights, configuration and tokenizer of a new reranker.

    Args:
        recipe: sizes and choices; of the layers of the BERT checkpoint, the first ones are taken.
        bert: folder or hub name of a BERT-architecture checkpoint: weights and tokenizer.
        directory: made where it is missing.
    """
    folder = find_bert(bert)
    tokenizer = tokenizer_of(folder)
    sizes = sizes_of_bert(read_bert_config(folder))
    torch.manual_seed(0)  # of the weights of the head, which begin at random
    try:
        shape = PairShape(**recipe.pair)
        sizes["length"] = shape.length
        model = MatchIgnition(configured(MatchIgnitionConfig, **(sizes | recipe.model)))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"recipe {recipe.name}: {error}") from error
    load_bert_into_pairs(model.cross_encoder, folder)
    config = {
        "architecture": recipe.architecture,
        "name": recipe.name,
        "pair": asdict(shape),
        **_special_tokens(tokenizer),
        "model": _without(model.config, "length"),
    }
    write_files(directory, tokenizer.to_str(pretty=True).encode(), model, config)
    return load_reranker_checkpoint(directory)


def load_reranker_model(
    checkpoint: RerankerCheckpoint, changes: Mapping[str, Any] | None = None
) -> MatchIgnition:
    """Load the model of a reranker with its weights, in evaluation mode.

    `changes` of its configuration are for comparisons: another `importance`, say.
    """
    sizes = {"length": checkpoint.pair.length, **checkpoint.model, **(changes or {})}
    return load_weights(
        lambda: MatchIgnition(configured(MatchIgnitionConfig, **sizes)), checkpoint.directory
    )


def _special_tokens(tokenizer: Tokenizer) -> dict[str, int | None]:
    return {
        "start_token": tokenizer.token_to_id("[CLS]"),
        "end_token": tokenizer.token_to_id("[SEP]"),
        "padding_token": tokenizer.token_to_id("[PAD]"),
    }


def tokenizer_of(folder: Path) -> Tokenizer:
    """Read the tokenizer of a BERT checkpoint, made to cut words of any length."""
    path = folder / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    missing = [t for t in ("[CLS]", "[SEP]", "[PAD]") if tokenizer.token_to_id(t) is None]
    if missing:
        raise CheckpointError(f"{path} has no {', '.join(missing)}")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.FixedLength(_CHARACTERS_A_WORD)]
    )
    return tokenizer

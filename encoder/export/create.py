"""Make a new checkpoint from a recipe: weights, configuration and tokenizer, no graphs yet."""

import json
import shutil
import tomllib
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from tokenizers import Tokenizer, pre_tokenizers

from encoder.checkpoint import (
    CONFIG,
    TOKENIZER,
    Checkpoint,
    load_checkpoint,
    write_config,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.models.match_ignition import MatchIgnition, MatchIgnitionConfig
from encoder.models.registry import CONFIGS, Model, ModelConfig, begin_as_mean, new_model
from encoder.models.weights import (
    find_bert,
    load_bert_into,
    load_bert_into_pairs,
    load_weights,
    read_bert_config,
    save_weights,
    sizes_of_bert,
)
from encoder.reranker.checkpoint import (
    ARCHITECTURE,
    PairShape,
    RerankerCheckpoint,
    load_reranker_checkpoint,
    write_reranker_config,
    write_reranker_manifest,
)


@dataclass(frozen=True, slots=True)
class RerankerRecipe:
    """What a recipe file says of a new reranker; see `PairShape` and `MatchIgnitionConfig`."""

    name: str
    architecture: str
    pair: dict[str, Any]
    model: dict[str, Any] = field(default_factory=dict)


def read_reranker_recipe(path: Path) -> RerankerRecipe:
    """Read a recipe.

    Raises:
        CheckpointError: the file is missing or a field is unknown, missing or wrong.
    """
    return read_recipe_of(RerankerRecipe, path, (ARCHITECTURE,))


def create_reranker(
    recipe: RerankerRecipe, bert: str, directory: Path, *, seed: int = 0
) -> RerankerCheckpoint:
    """Write weights, configuration and tokenizer of a new reranker.

    Args:
        recipe: sizes and choices; of the layers of the BERT checkpoint, the first ones are taken.
        bert: folder or hub name of a BERT-architecture checkpoint: weights and tokenizer.
        directory: made where it is missing.
        seed: of the weights of the head, which begin at random.

    Raises:
        CheckpointError: the recipe and the BERT checkpoint do not fit.
    """
    folder = find_bert(bert)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(folder)
    tokenizer.save(str(directory / TOKENIZER))
    sizes = sizes_of_bert(read_bert_config(folder))
    torch.manual_seed(seed)
    try:
        shape = PairShape(**recipe.pair)
        sizes["length"] = shape.length
        model = MatchIgnition(MatchIgnitionConfig(**(sizes | recipe.model)))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"recipe {recipe.name}: {error}") from error
    load_bert_into_pairs(model.cross_encoder, folder)
    save_weights(model, directory)
    write_reranker_config(
        directory, _reranker_config_of(recipe.name, shape, model.config, tokenizer)
    )
    write_reranker_manifest(directory)
    return load_reranker_checkpoint(directory)


def write_trained_reranker(
    model: MatchIgnition, start: RerankerCheckpoint, directory: Path, name: str
) -> RerankerCheckpoint:
    """Write a trained reranker, no graph yet: all but its weights is of the one it began as."""
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads((start.directory / CONFIG).read_text(encoding="utf-8"))
    shutil.copyfile(start.directory / TOKENIZER, directory / TOKENIZER)
    save_weights(model, directory)
    write_reranker_config(directory, config | {"name": name})
    write_reranker_manifest(directory)
    return load_reranker_checkpoint(directory)


def load_reranker_model(
    checkpoint: RerankerCheckpoint, changes: Mapping[str, Any] | None = None
) -> MatchIgnition:
    """Load the model of a checkpoint with its weights, in evaluation mode.

    Args:
        checkpoint: one that has its weights.
        changes: of its configuration, for comparisons: another `importance`, say.

    Raises:
        CheckpointError: the weights are missing or do not fit the configuration.
    """
    sizes = {"length": checkpoint.pair.length, **checkpoint.model, **(changes or {})}
    return load_weights(lambda: MatchIgnition(MatchIgnitionConfig(**sizes)), checkpoint.directory)


def _reranker_config_of(
    name: str, shape: PairShape, config: MatchIgnitionConfig, tokenizer: Tokenizer
) -> dict[str, Any]:
    model = asdict(config)
    del model["length"]
    return {
        "name": name,
        "pair": asdict(shape),
        "start_token": tokenizer.token_to_id("[CLS]"),
        "end_token": tokenizer.token_to_id("[SEP]"),
        "padding_token": tokenizer.token_to_id("[PAD]"),
        "model": model,
    }


class _AnyRecipe(Protocol):
    """What recipes of every kind say."""

    @property
    def architecture(self) -> str: ...


R = TypeVar("R", bound=_AnyRecipe)

_CHARACTERS_A_WORD = 100  # longer ones would become one unknown token


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a recipe file says of a new checkpoint; see `Checkpoint` and `encoder.models`."""

    name: str
    architecture: str
    block_length: int
    max_blocks: int
    long_sentence: str
    language: str
    dimension: int
    initialise_from_bert: bool
    begin_as_mean: bool
    model: dict[str, Any] = field(default_factory=dict)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        CheckpointError: the file is missing or a field is unknown, missing or wrong.
    """
    return read_recipe_of(Recipe, path, CONFIGS)


def read_recipe_of(kind: type[R], path: Path, architectures: Container[str]) -> R:
    """Read a recipe of a kind, whose architecture must be one of those given.

    Raises:
        CheckpointError: as `read_recipe`.
    """
    try:
        recipe = kind(**tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"recipe {path}: {error}") from error
    if recipe.architecture not in architectures:
        raise CheckpointError(f"recipe {path}: unknown architecture {recipe.architecture!r}")
    return recipe


def create_checkpoint(recipe: Recipe, bert: str, directory: Path, *, seed: int = 0) -> Checkpoint:
    """Write weights, configuration and tokenizer of a new checkpoint.

    Args:
        recipe: sizes and choices.
        bert: folder or hub name of a BERT-architecture checkpoint: the tokenizer, and where the
            recipe says so the weights of the sentence level.
        directory: made where it is missing.
        seed: of the random weights; equal seeds give equal fingerprints.

    Raises:
        CheckpointError: the recipe and the BERT checkpoint do not fit.
    """
    folder = find_bert(bert)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(folder)
    tokenizer.save(str(directory / TOKENIZER))
    model = _new_model(recipe, folder, tokenizer.get_vocab_size(), seed)
    save_weights(model, directory)
    write_config(directory, _config_of(recipe, model.config, tokenizer))
    write_manifest(directory)
    return load_checkpoint(directory)


def load_model(checkpoint: Checkpoint) -> Model:
    """Load the model of a checkpoint with its weights, ready to encode (evaluation mode).

    Raises:
        CheckpointError: the weights are missing or do not fit the configuration.
    """
    return load_weights(lambda: new_model(model_config(checkpoint)), checkpoint.directory)


def model_config(checkpoint: Checkpoint) -> ModelConfig:
    """Return the architecture's configuration of a checkpoint.

    Raises:
        CheckpointError: an unknown architecture.
    """
    if checkpoint.architecture not in CONFIGS:
        raise CheckpointError(
            f"{checkpoint.directory}: unknown architecture {checkpoint.architecture!r}"
        )
    return CONFIGS[checkpoint.architecture](
        block_length=checkpoint.block_length,
        max_blocks=checkpoint.max_blocks,
        dimension=checkpoint.dimension,
        **checkpoint.model,
    )


def _new_model(recipe: Recipe, folder: Path, vocabulary_size: int, seed: int) -> Model:
    sizes: dict[str, Any] = {"vocabulary_size": vocabulary_size}
    if recipe.initialise_from_bert:
        sizes = sizes_of_bert(read_bert_config(folder))
    torch.manual_seed(seed)
    try:
        config = CONFIGS[recipe.architecture](
            block_length=recipe.block_length,
            max_blocks=recipe.max_blocks,
            dimension=recipe.dimension,
            **(sizes | recipe.model),
        )
        model = new_model(config)
        if recipe.initialise_from_bert:
            load_bert_into(model.block_encoder, folder)
        if recipe.begin_as_mean:
            begin_as_mean(model)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"recipe {recipe.name}: {error}") from error
    return model.eval()


def _config_of(recipe: Recipe, config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    model = asdict(config)
    for name in ("block_length", "max_blocks", "dimension"):
        del model[name]
    return {
        "name": recipe.name,
        "architecture": recipe.architecture,
        "block_length": config.block_length,
        "max_blocks": config.max_blocks,
        "long_sentence": recipe.long_sentence,
        "language": recipe.language,
        "start_token": tokenizer.token_to_id("[CLS]"),
        "end_token": tokenizer.token_to_id("[SEP]"),
        "padding_token": tokenizer.token_to_id("[PAD]"),
        "block_dimension": config.hidden_size,
        "dimension": config.dimension,
        "model": model,
    }


def tokenizer_of(folder: Path) -> Tokenizer:
    """Read the tokenizer of a BERT checkpoint, made to cut words of any length.

    Raises:
        CheckpointError: it cannot be read, or has no [CLS], [SEP] or [PAD].
    """
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

"""Make a new reranker from a recipe: weights, configuration and tokenizer, no graph yet."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from encoder.checkpoint import CONFIG, TOKENIZER
from encoder.create import read_recipe_of, tokenizer_of
from encoder.errors import CheckpointError
from encoder.models.bert_weights import (
    find_bert,
    load_bert_into_pairs,
    read_bert_config,
    sizes_of_bert,
)
from encoder.models.match_ignition import MatchIgnition, MatchIgnitionConfig
from encoder.models.weights import load_weights, save_weights
from encoder.reranker_checkpoint import (
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
    write_reranker_config(directory, _config_of(recipe.name, shape, model.config, tokenizer))
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


def _config_of(
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

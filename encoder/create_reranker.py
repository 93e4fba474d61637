"""Make a new reranker from a recipe: weights, configuration and tokenizer, no graph yet."""

import json
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from encoder.checkpoint import CONFIG, TOKENIZER, WEIGHTS
from encoder.create import tokenizer_of
from encoder.errors import CheckpointError
from encoder.models.bert_weights import find_bert, load_bert_tensors, read_bert_config
from encoder.models.match_ignition import CrossEncoder, MatchIgnition, MatchIgnitionConfig
from encoder.reranker_checkpoint import (
    ARCHITECTURE,
    PairShape,
    RerankerCheckpoint,
    load_reranker_checkpoint,
    write_reranker_config,
    write_reranker_manifest,
)

_BERT_NAMES = {
    "query": ("attention.self.query",),
    "key_value": ("attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
_EMBEDDINGS = {
    "token_embedding.weight": "word_embeddings.weight",
    "position_embedding.weight": "position_embeddings.weight",
    "type_embedding.weight": "token_type_embeddings.weight",
    "embedding_norm.weight": "LayerNorm.weight",
    "embedding_norm.bias": "LayerNorm.bias",
}


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
    try:
        recipe = RerankerRecipe(**tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"recipe {path}: {error}") from error
    if recipe.architecture != ARCHITECTURE:
        raise CheckpointError(f"recipe {path}: unknown architecture {recipe.architecture!r}")
    return recipe


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
    bert_config = read_bert_config(folder)
    torch.manual_seed(seed)
    try:
        shape = PairShape(**recipe.pair)
        sizes = {
            "vocabulary_size": bert_config["vocab_size"],
            "hidden_size": bert_config["hidden_size"],
            "intermediate_size": bert_config["intermediate_size"],
            "attention_heads": bert_config["num_attention_heads"],
            "layer_norm_epsilon": bert_config.get("layer_norm_eps", 1e-12),
            "length": shape.length,
        }
        model = MatchIgnition(MatchIgnitionConfig(**(sizes | recipe.model)))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"recipe {recipe.name}: {error}") from error
    _load_bert_into(model.cross_encoder, folder)
    save_file(model.state_dict(), directory / WEIGHTS)
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
    weights = {
        key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()
    }
    save_file(weights, directory / WEIGHTS)
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
    path = checkpoint.directory / WEIGHTS
    sizes = {"length": checkpoint.pair.length, **checkpoint.model, **(changes or {})}
    try:
        model = MatchIgnition(MatchIgnitionConfig(**sizes))
        model.load_state_dict(load_file(path))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: this reranker can only be served") from error
    except (OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit the configuration: {error}") from error
    return model.eval()


def _load_bert_into(encoder: CrossEncoder, folder: Path) -> None:
    """Copy embeddings and the first layers of a BERT checkpoint."""
    source = load_bert_tensors(folder)
    target = encoder.state_dict()
    try:
        for name, bert in _EMBEDDINGS.items():
            target[name] = source[f"embeddings.{bert}"].float()
        target["position_embedding.weight"] = target["position_embedding.weight"][
            : encoder.config.length
        ]
        for layer in range(encoder.config.layers):
            for ours, berts in _BERT_NAMES.items():
                for part in ("weight", "bias"):
                    rows = [source[f"encoder.layer.{layer}.{name}.{part}"] for name in berts]
                    target[f"layers.{layer}.{ours}.{part}"] = torch.cat(rows).float()
        encoder.load_state_dict(target)
    except KeyError as error:
        raise CheckpointError(f"{folder}: the BERT checkpoint has no tensor {error}") from error
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: {error}") from error


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

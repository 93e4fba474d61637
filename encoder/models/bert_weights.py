"""Initialise the sentence level of SMITH from any checkpoint of the BERT architecture."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from encoder.errors import CheckpointError
from encoder.models.smith import BlockEncoder, SmithConfig

_LAYER_NAMES = {
    "attention.query_key_value": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}


def find_bert(name: str) -> Path:
    """Return the folder of a BERT checkpoint: `name` itself, or downloaded under that hub name.

    Raises:
        CheckpointError: no such folder, and no hub answers for the name.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "vocab.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"{name} is neither a folder nor found on the hub: {error}"
        ) from error


def read_bert_config(folder: Path) -> dict[str, Any]:
    """Read `config.json` of a BERT checkpoint.

    Raises:
        CheckpointError: no configuration, or one of another architecture or activation.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / 'config.json'} cannot be read: {error}") from error
    if config.get("model_type") != "bert":
        raise CheckpointError(f"{folder}: model_type is {config.get('model_type')!r}, not 'bert'")
    if config.get("hidden_act", "gelu") != "gelu":
        raise CheckpointError(f"{folder}: hidden_act is {config['hidden_act']!r}, not 'gelu'")
    return config


def smith_sizes_of_bert(config: dict[str, Any]) -> dict[str, Any]:
    """Return the `SmithConfig` fields that a BERT configuration decides."""
    return {
        "vocabulary_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "attention_heads": config["num_attention_heads"],
        "layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
    }


def load_bert_into(encoder: BlockEncoder, folder: Path) -> None:
    """Copy the embeddings and layers of a BERT checkpoint into the sentence level.

    The embedding of token type 0, which every token of a single text has, is added to the
    position embeddings. The projection of the block vector begins as the identity, so that with
    mean pooling a block vector is what the sentence encoder gave.

    Raises:
        CheckpointError: the file is missing, or its sizes are not those of `encoder.config`.
    """
    path = folder / "model.safetensors"
    source = load_bert_tensors(folder)
    target = encoder.state_dict()
    for name, tensor in _bert_tensors(source, encoder.config):
        if target[name].shape != tensor.shape:
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, not {tuple(target[name].shape)}"
            )
        target[name] = tensor.float()
    target["projection.weight"] = torch.eye(encoder.config.hidden_size)
    target["projection.bias"] = torch.zeros(encoder.config.hidden_size)
    encoder.load_state_dict(target)


def load_bert_tensors(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a BERT checkpoint by their names within the model.

    Raises:
        CheckpointError: the file is missing or cannot be read.
    """
    path = folder / "model.safetensors"
    try:
        return {name.removeprefix("bert."): tensor for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _bert_tensors(source: dict[str, Tensor], config: SmithConfig) -> list[tuple[str, Tensor]]:
    try:
        positions = source["embeddings.position_embeddings.weight"][: config.block_length]
        token_type = source["embeddings.token_type_embeddings.weight"][0]
        tensors = [
            ("token_embedding.weight", source["embeddings.word_embeddings.weight"]),
            ("position_embedding.weight", positions + token_type),
            ("embedding_norm.weight", source["embeddings.LayerNorm.weight"]),
            ("embedding_norm.bias", source["embeddings.LayerNorm.bias"]),
        ]
        for layer in range(config.sentence_layers):
            for ours, berts in _LAYER_NAMES.items():
                for part in ("weight", "bias"):
                    rows = [source[f"encoder.layer.{layer}.{bert}.{part}"] for bert in berts]
                    tensors.append((f"layers.{layer}.{ours}.{part}", torch.cat(rows)))
    except KeyError as error:
        raise CheckpointError(f"the BERT checkpoint has no tensor {error}") from error
    return tensors

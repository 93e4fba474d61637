"""The weights file of a checkpoint, and the weights of a BERT that a new one begins with."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor, nn

from encoder.checkpoint import WEIGHTS, read_weights
from encoder.errors import CheckpointError
from training.models.layers import BlockEncoder

# What follows the attention of a layer: our names, and those of BERT.
FEED_FORWARD = {
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
_LAYER_NAMES = {
    "attention.query_key_value": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention.output": ("attention.output.dense",),
    **FEED_FORWARD,
}


def find_bert(name: str) -> Path:
    """Return the folder of a BERT checkpoint: `name` itself, or downloaded under that hub name."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "vocab.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"{name} is neither a folder (with config.json, tokenizer.json and model.safetensors) "
            f"nor found on the hub: {error}"
        ) from error


def read_bert_config(folder: Path) -> dict[str, Any]:
    """Read `config.json` of a BERT checkpoint."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / 'config.json'} cannot be read: {error}") from error
    if config.get("model_type") != "bert":
        raise CheckpointError(f"{folder}: model_type is {config.get('model_type')!r}, not 'bert'")
    if config.get("hidden_act", "gelu") != "gelu":
        raise CheckpointError(f"{folder}: hidden_act is {config['hidden_act']!r}, not 'gelu'")
    return config


def sizes_of_bert(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration that a BERT configuration decides."""
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
    """
    config = encoder.config
    bert = BertWeights(folder)
    types = bert["embeddings.token_type_embeddings.weight"]
    positions = bert["embeddings.position_embeddings.weight"][: config.block_length]
    tensors = bert.embeddings() | {"position_embedding.weight": positions + types[0]}
    tensors |= bert.layers(_LAYER_NAMES, config.sentence_layers)
    tensors["projection.weight"] = torch.eye(config.hidden_size)
    tensors["projection.bias"] = torch.zeros(config.hidden_size)
    bert.copy_into(encoder, tensors)


class BertWeights:
    """The tensors of a BERT checkpoint by their names within the model."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "model.safetensors"
        try:
            source = load_file(self._path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{self._path} cannot be read: {error}") from error
        self._source = {name.removeprefix("bert."): tensor for name, tensor in source.items()}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._source:
            raise CheckpointError(f"{self._path}: the BERT checkpoint has no tensor {name!r}")
        return self._source[name]

    def embeddings(self) -> dict[str, Tensor]:
        """Return the embeddings that every encoder uses, by our names."""
        return {
            "token_embedding.weight": self["embeddings.word_embeddings.weight"],
            "embedding_norm.weight": self["embeddings.LayerNorm.weight"],
            "embedding_norm.bias": self["embeddings.LayerNorm.bias"],
        }

    def layers(self, names: Mapping[str, Sequence[str]], count: int) -> dict[str, Tensor]:
        """Return the first layers; one of our modules stacks several of BERT's."""
        return {
            f"layers.{layer}.{ours}.{part}": torch.cat(
                [self[f"encoder.layer.{layer}.{bert}.{part}"] for bert in berts]
            )
            for layer in range(count)
            for ours, berts in names.items()
            for part in ("weight", "bias")
        }

    def copy_into(self, encoder: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """Set all tensors of an encoder."""
        try:
            encoder.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        except RuntimeError as error:  # another shape
            raise CheckpointError(f"{self._path}: {error}") from error


M = TypeVar("M", bound=nn.Module)


def load_weights(make: Callable[[], M], directory: Path) -> M:
    """Make a model with the weights of a directory, in single precision and evaluation mode."""
    data = read_weights(directory)
    try:
        model = make()
        model.load_state_dict({name: tensor.float() for name, tensor in load(data).items()})
    except (RuntimeError, SafetensorError, TypeError, ValueError) as error:
        path = directory / WEIGHTS
        raise CheckpointError(f"{path} does not fit the configuration: {error}") from error
    return model.eval()


def save_weights(model: nn.Module, directory: Path) -> None:
    """Write the weights of a model, on any device, into a directory, in half precision.

    What is exported is loaded from there, so that graphs are of the weights that are kept.
    """
    weights = {name: _halve(name, tensor) for name, tensor in model.state_dict().items()}
    (directory / WEIGHTS).write_bytes(save(weights))


def _halve(name: str, tensor: Tensor) -> Tensor:
    half = tensor.detach().cpu().contiguous().half()
    if not half.isfinite().all():
        raise CheckpointError(
            f"{name}: a weight of {tensor.abs().max().item():g} is beyond the range of half "
            f"precision, {torch.finfo(torch.half).max:g}"
        )
    return half

"""The weights file of a checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from encoder.checkpoint import WEIGHTS
from encoder.errors import CheckpointError

M = TypeVar("M", bound=nn.Module)


def load_weights(make: Callable[[], M], directory: Path) -> M:
    """Make a model and give it the weights that a directory has; in evaluation mode.

    Raises:
        CheckpointError: the weights are missing or do not fit the configuration.
    """
    path = directory / WEIGHTS
    try:
        model = make()
        model.load_state_dict(load_file(path))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: this checkpoint can only be served") from error
    except (OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit the configuration: {error}") from error
    return model.eval()


def save_weights(model: nn.Module, directory: Path) -> None:
    """Write the weights of a model, wherever they lie, into a directory."""
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    save_file(weights, directory / WEIGHTS)

"""The state of a run on the disk: safetensors with JSON in the header, never a pickle."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from encoder.durable_files import put_in_place
from encoder.training.errors import ResumeError

STATE = "state.safetensors"
BEST = "best.safetensors"
_HEADER = "run"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        step: of the optimiser, done.
        best_step: after which validation was best; 0 is the start.
        best_figure: of validation.
        waited: validations since the best one.
    """

    step: int
    best_step: int
    best_figure: float
    waited: int


@dataclass(frozen=True, slots=True)
class RunFingerprint:
    """What a run hangs on; a run of another is another run.

    Attributes:
        recipe: of the recipe.
        data: of the data and of the checkpoint that training starts from.
    """

    recipe: str
    data: str


def save_state(
    directory: Path,
    trained: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    fingerprint: RunFingerprint,
) -> None:
    """Write all that a resumed run needs, whole or not at all.

    There is no state of a random generator in it: every step seeds its own.

    Raises:
        OSError: the disk did not take it.
    """
    tensors = {f"weight.{name}": parameter.detach() for name, parameter in trained.items()}
    for name, parameter in trained.items():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{key}.{name}"] = value
    header = {"progress": asdict(progress), "fingerprint": asdict(fingerprint)}
    _write(directory / STATE, tensors, header)


def load_state(
    directory: Path,
    trained: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    fingerprint: RunFingerprint,
) -> Progress:
    """Set weights and optimiser to what `save_state` wrote.

    Raises:
        ResumeError: the file is unreadable, or of another recipe, other data or another model.
    """
    path = directory / STATE
    tensors, header = _read(path)
    try:
        found = RunFingerprint(**header["fingerprint"])
        progress = Progress(**header["progress"])
    except (KeyError, TypeError) as error:
        raise ResumeError(f"{path} is not the state of a run: {error!r}") from error
    for part in ("recipe", "data"):
        if getattr(found, part) != getattr(fingerprint, part):
            what = "recipe" if part == "recipe" else "data, or the checkpoint it starts from,"
            raise ResumeError(
                f"{path} is of another run: its {what} differs. Train into another directory, or"
                " delete this one to begin anew"
            )
    _set_weights(path, trained, tensors, "weight.")
    for name, parameter in trained.items():
        keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in tensors]
        if keys:
            optimiser.state[parameter] = {
                key: tensors[f"{key}.{name}"].to(parameter.device) for key in keys
            }
    return progress


def save_best(directory: Path, trained: Mapping[str, nn.Parameter], progress: Progress) -> None:
    """Write the best weights so far.

    Raises:
        OSError: the disk did not take it.
    """
    weights = {name: parameter.detach() for name, parameter in trained.items()}
    _write(directory / BEST, weights, {"progress": asdict(progress)})


def load_best(directory: Path, trained: Mapping[str, nn.Parameter]) -> None:
    """Set the weights to the best of the run.

    Raises:
        ResumeError: the file is missing, unreadable or of another model.
    """
    path = directory / BEST
    _set_weights(path, trained, _read(path)[0], "")


def _write(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    save_file(dict(tensors), unfinished, metadata={_HEADER: json.dumps(header)})
    put_in_place(unfinished, path)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(_HEADER, "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise ResumeError(f"{path} cannot be read: {error}") from error


def _set_weights(
    path: Path,
    trained: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
    prefix: str,
) -> None:
    with torch.no_grad():
        for name, parameter in trained.items():
            weight = tensors.get(prefix + name)
            if weight is None or weight.shape != parameter.shape:
                raise ResumeError(f"{path} does not fit the model: {name}")
            parameter.copy_(weight)

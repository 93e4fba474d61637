"""The files of a run: its curve as JSON Lines, its state as safetensors (never a pickle)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from encoder.atomic_files import replace_durably, write_atomically
from training.errors import ResumeError, TrainingError

CURVE = "curve.jsonl"
LOSS = "loss"
VALIDATION = "validation"


def append_to_curve(path: Path, step: int, figures: Mapping[str, float]) -> None:
    """Write one record: {"step": …, figure: value, …}."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **figures}) + "\n")


def truncate_curve(path: Path, last_step: int) -> None:
    """Remove the records after a step, so that a resumed run writes them again.

    An incomplete last record, of a run that was killed, is removed too.
    """
    records = read_curve(path) if path.exists() else []
    kept = [json.dumps(record) + "\n" for record in records if record["step"] <= last_step]
    write_atomically(path, "".join(kept))


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Read the records of a curve; an incomplete last line is left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        if any(not isinstance(record["step"], int) for record in records):
            raise TypeError("a step that is not a number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} is not a curve: {error!r}") from error
    return records


STATE = "state.safetensors"
BEST = "best.safetensors"
_HEADER = "run"


@dataclass(frozen=True, slots=True)
class RunState:
    """The progress of a run.

    Attributes:
        step: the last completed step of the optimiser.
        best_step: after which validation was best; 0 for the start.
        best_figure: of validation.
        waited: validations since the best one.
    """

    step: int
    best_step: int
    best_figure: float
    waited: int


def save_state(
    directory: Path,
    trained: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    state: RunState,
    fingerprint: Mapping[str, str],
) -> None:
    """Write what a resumed run needs, atomically.

    It holds no state of a random generator: every step seeds its own. The fingerprint is that of
    the "recipe", and of the "data" with the checkpoint that training starts from.
    """
    tensors = {f"weight.{name}": parameter.detach() for name, parameter in trained.items()}
    for name, parameter in trained.items():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{key}.{name}"] = value
    header = {"progress": asdict(state), "fingerprint": dict(fingerprint)}
    _write(directory / STATE, tensors, header)


def load_state(
    directory: Path,
    trained: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    fingerprint: Mapping[str, str],
) -> RunState:
    """Set weights and optimiser to what `save_state` wrote."""
    path = directory / STATE
    tensors, header = _read(path)
    try:
        found = header["fingerprint"]
        different = [part for part in ("recipe", "data") if found[part] != fingerprint[part]]
        state = RunState(**header["progress"])
    except (KeyError, TypeError) as error:
        raise ResumeError(f"{path} is not the state of a run: {error!r}") from error
    if different:
        what = "recipe" if "recipe" in different else "data, or the checkpoint it starts from,"
        raise ResumeError(
            f"{path} is of another run: its {what} differs. Train into another directory, or"
            " delete this one to start again"
        )
    _set_weights(path, trained, tensors, "weight.")
    for name, parameter in trained.items():
        keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in tensors]
        if keys:
            optimiser.state[parameter] = {
                key: tensors[f"{key}.{name}"].to(parameter.device) for key in keys
            }
    return state


def save_best(directory: Path, trained: Mapping[str, nn.Parameter], state: RunState) -> None:
    """Write the best weights so far."""
    weights = {name: parameter.detach() for name, parameter in trained.items()}
    _write(directory / BEST, weights, {"progress": asdict(state)})


def load_best(directory: Path, trained: Mapping[str, nn.Parameter]) -> None:
    """Set the weights to the best of the run."""
    path = directory / BEST
    _set_weights(path, trained, _read(path)[0], "")


def _write(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    save_file(dict(tensors), unfinished, metadata={_HEADER: json.dumps(header)})
    replace_durably(unfinished, path)


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

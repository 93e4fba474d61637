"""The curves of a run: JSON Lines, one record a step and one a validation, and a picture."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from encoder.durable_files import write_in_place
from encoder.training.errors import TrainingError

CURVE = "curve.jsonl"
LOSS = "loss"
VALIDATION = "validation"


def append_to_curve(path: Path, step: int, figures: Mapping[str, float]) -> None:
    """Write one record: {"step": …, figure: value, …}.

    Raises:
        OSError: the disk did not take it.
    """
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **figures}) + "\n")


def truncate_curve(path: Path, last_step: int) -> None:
    """Take away what lies behind a step, so that a resumed run writes it again.

    A record that was being written when the run was killed goes too.

    Raises:
        OSError: the disk did not take it.
    """
    records = read_curve(path) if path.exists() else []
    kept = [json.dumps(record) + "\n" for record in records if record["step"] <= last_step]
    write_in_place(path, "".join(kept))


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Read the records of a curve; one without its line's end is left out.

    Raises:
        TrainingError: the file is missing or not a curve.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        if any(not isinstance(record["step"], int) for record in records):
            raise TypeError("a step that is no number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} is not a curve: {error!r}") from error
    return records


def draw_curve(path: Path, picture: Path) -> None:
    """Draw a curve as SVG: the losses by step, and below them the validation.

    Raises:
        TrainingError: the curve cannot be read or is empty, or matplotlib is not installed.
        OSError: the picture cannot be written.
    """
    records = read_curve(path)
    if not records:
        raise TrainingError(f"{path} has no record yet")
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TrainingError("drawing takes matplotlib: pip install 'longmatch[train]'") from error
    with rc_context({"svg.hashsalt": "longmatch"}):  # equal curves give equal files
        figure = Figure(figsize=(7, 6), layout="constrained")
        FigureCanvasSVG(figure)
        losses, validation = figure.subplots(2, sharex=True)
        names = sorted({name for record in records for name in record if name.startswith(LOSS)})
        for name in names:
            losses.plot(*_points(records, name), label=name, linewidth=1)
        losses.set_ylabel("loss")
        losses.legend(frameon=False)
        validation.plot(*_points(records, VALIDATION), marker="o", markersize=3)
        validation.set_ylabel("validation")
        validation.set_xlabel("step")
        figure.savefig(picture, format="svg", metadata={"Date": None})


def _points(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    chosen = [record for record in records if name in record]
    return [record["step"] for record in chosen], [record[name] for record in chosen]

"""Curves: what is appended can be read, truncated and plotted."""

from pathlib import Path

import pytest

from training.errors import TrainingError
from training.run_files import append_to_curve, read_curve, truncate_curve


@pytest.fixture
def curve(tmp_path: Path) -> Path:
    path = tmp_path / "curve.jsonl"
    for step in range(1, 6):
        append_to_curve(path, step, {"loss": 1 / step, "loss.links": 0.1 + step})
        if step % 2 == 0:
            append_to_curve(path, step, {"validation": step / 10})
    return path


def test_a_curve_is_cut_behind_a_step_and_goes_on(curve: Path) -> None:
    whole = read_curve(curve)
    with curve.open("a") as file:
        file.write('{"step": 6, "lo')  # the process died here
    truncate_curve(curve, 4)
    assert read_curve(curve) == whole[:6]
    append_to_curve(curve, 5, {"loss": 1 / 5, "loss.links": 5.1})
    assert read_curve(curve) == whole
    assert read_curve(curve)[2] == {"step": 2, "validation": 0.2}


@pytest.mark.parametrize("content", ["no json\n", '{"loss": 1}\n', '{"step": "1"}\n', "[]\n"])
def test_what_is_no_curve_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text(content)
    with pytest.raises(TrainingError, match=r"curve\.jsonl is not a curve"):
        read_curve(path)

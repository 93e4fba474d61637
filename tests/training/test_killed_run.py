"""A run that is killed and resumed is the run that was never killed."""

import runpy
import signal
import subprocess
import sys
from pathlib import Path

import torch

from training.run_files import BEST, CURVE, STATE, read_curve

SCRIPT = Path(__file__).parent / "tiny_run.py"
ROOT = Path(__file__).parents[2]


def test_a_killed_and_resumed_run_is_bit_by_bit_the_same(tmp_path: Path) -> None:
    run = runpy.run_path(str(SCRIPT))["run"]
    model, progress = run(tmp_path / "whole")
    killed = [sys.executable, str(SCRIPT), str(tmp_path / "killed"), "13"]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    result = subprocess.run(killed, env=environment, check=False, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert read_curve(tmp_path / "killed" / CURVE)[-1]["step"] == 13  # the checkpoint is of 10
    torch.rand(7)  # the state of the process that resumes does not matter
    resumed_model, resumed_progress = run(tmp_path / "killed")
    assert resumed_progress == progress
    for name in (CURVE, STATE, BEST):
        whole, resumed = tmp_path / "whole" / name, tmp_path / "killed" / name
        assert resumed.read_bytes() == whole.read_bytes(), name
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, resumed_model.state_dict()[name]), name
    records = read_curve(tmp_path / "whole" / CURVE)
    assert [r["step"] for r in records if "loss" in r] == list(range(1, 31))
    assert [r["step"] for r in records if "validation" in r] == [0, 7, 14, 21, 28, 30]
    assert len({record["loss"] for record in records if "loss" in record}) == 30

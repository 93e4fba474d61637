"""R2 and R3: an operation is cut at every one of its writes, and nothing acknowledged is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.tiers import Tier

SCRIPT = Path(__file__).with_name("cut_writes.py")
REPOSITORY = SCRIPT.parents[2]
OPERATIONS = ("publish", "backup", "restore", "swap", "make", "remove")
FAILURES = ("killed", "torn", "ENOSPC", "EIO", "EMFILE", "MemoryError")
FEWER = [
    *(("publish", "torn"), ("backup", "torn"), ("restore", "torn")),
    *(("swap", "killed"), ("make", "killed"), ("remove", "EIO")),
]
# Every failure of every operation is for the sweep: each takes some seconds.
EVERY = [
    pytest.param(
        operation, failure, marks=() if (operation, failure) in FEWER else pytest.mark.slow
    )
    for operation in OPERATIONS
    for failure in FAILURES
]
FEW_POINTS = ("remove",)  # all are tried each time
LEAST_POINTS = {"publish": 20, "backup": 10, "restore": 15, "swap": 15} | {
    "make": 20,
    "remove": 10,
}


@pytest.mark.parametrize(("operation", "failure"), EVERY)
def test_cut_at_every_write(operation: str, failure: str, tmp_path: Path, tier: Tier) -> None:
    every = tier.sweep or operation in FEW_POINTS
    arguments = [operation, failure, str(tmp_path), *(["--sweep"] if every else [])]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= LEAST_POINTS[operation]

"""R2 and R3: an operation is cut at every one of its writes, and nothing acknowledged is lost."""

import os
from pathlib import Path

import pytest

from tests.kit.forking import fork
from tests.kit.process_fixtures import BEGINNING
from tests.kit.tiers import Tier

PROGRAM = "tests.reliability.cut_writes:main"
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
    with (tmp_path / "out").open("wb") as out, (tmp_path / "errors").open("wb") as errors:
        status = fork(BEGINNING, arguments, os.environ, out, errors, PROGRAM).wait()
    assert status == 0, (tmp_path / "errors").read_text()[-3000:]
    assert int((tmp_path / "out").read_text()) >= LEAST_POINTS[operation]

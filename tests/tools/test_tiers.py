"""The tiers: what --fast, no option and --sweep run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.tiers import FIXED_SEED, Tier

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.slow
def test_slow(): pass

def test_fast(tier):
    print("tier", tier.sweep, tier.seed)
    assert False, "so that what is printed is shown"
"""


def run(tmp_path: Path, *options: str) -> str:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    plugins = ("-p", "tests.tools.tiers", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_fast_runs_unit_tests_alone(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text("import torch\ndef test_model(): pass\n")
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e/test_server.py").write_text("def test_server(): pass\n")
    fixture = "import pytest\n@pytest.fixture\ndef serve(): pass\n"
    tests = "def test_served(serve): pass\ndef test_unit(): pass\n"
    (tmp_path / "test_other.py").write_text(fixture + tests)
    assert "1 failed, 1 passed, 2 deselected" in run(tmp_path, "--fast")


def test_slow_tests_are_left_out_and_the_seed_is_fixed(tmp_path: Path) -> None:
    output = run(tmp_path)
    assert f"tier False {FIXED_SEED}" in output
    assert "1 failed, 1 deselected" in output


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="alone"),
        pytest.param(("-n", "2"), id="two-workers", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_runs_them_and_shows_its_seed(tmp_path: Path, workers: tuple[str, ...]) -> None:
    output = run(tmp_path, "--sweep", *workers)
    seed = output.split("seed: ")[1].split()[0]
    assert f"seed: {seed} (--sweep)" in output
    assert f"tier True {seed}" in output
    assert "1 failed, 1 passed" in output
    assert int(seed) != FIXED_SEED


@pytest.mark.slow
def test_a_seed_that_is_given_is_used(tmp_path: Path) -> None:
    assert "tier True 41" in run(tmp_path, "--sweep", "--seed", "41")


def test_numbers_are_all_or_doubled() -> None:
    assert list(Tier(sweep=True, seed=0).numbers(6)) == [1, 2, 3, 4, 5]
    assert list(Tier(sweep=False, seed=0).numbers(20)) == [1, 2, 4, 8, 16]

"""R1, R4 and R5: kills, random operations and swaps; `make test-all` runs them long.

`RELIABILITY_TIMES=10 make test-all` runs them ten times as long.
"""

import os
from pathlib import Path

import pytest

from tests.kit.tiers import Tier
from tests.reliability.kill_programme import run_kills
from tests.reliability.model_programme import run_model
from tests.reliability.swap_programme import SwapPlan, run_swaps

TIMES = int(os.environ.get("RELIABILITY_TIMES", "1"))


def test_operations_give_what_a_dict_gives(tmp_path: Path, tier: Tier) -> None:
    """R4."""
    operations = TIMES * 20_000 if tier.sweep else 600
    report = run_model(tmp_path / "data", operations, tier.seed)
    assert sum(report.kinds.values()) == report.operations == operations
    assert len(report.kinds) == 10  # each kind has happened
    assert report.generations > 5


def test_answers_are_right_for_the_generation_they_name(tmp_path: Path, tier: Tier) -> None:
    """R5."""
    seconds, searchers = (TIMES * 60.0, 8) if tier.sweep else (1.5, 4)
    plan = SwapPlan(seconds, searchers, writers=searchers // 2, seed=tier.seed)
    report = run_swaps(tmp_path / "data", plan)
    assert report.wrong == ()
    assert report.answers > 50
    assert 0 < report.exact_answers < report.answers
    assert report.changes > 5
    assert report.generations >= 3
    assert report.generations_named >= 2
    assert report.recall_at_10 > 0.85  # of random vectors, with a target of 0: nprobe is the least


@pytest.mark.parametrize(
    ("kills", "documents"),
    [
        (2, 400),
        pytest.param(TIMES * 200, 400, marks=pytest.mark.slow),
        pytest.param(TIMES * 20, 20_000, marks=pytest.mark.slow),
    ],
)
def test_nothing_acknowledged_is_lost_by_kill_9(
    tmp_path: Path, kills: int, documents: int, tier: Tier
) -> None:
    """R1: with one list, where all work is short, and with many."""
    report = run_kills(tmp_path / "data", kills, tier, documents)
    assert (report.lost, report.back, report.twice, report.wrong) == (0, 0, 0, [])
    assert report.kills == kills
    assert report.acknowledged >= kills // 2
    assert report.generations > 1
    assert report.backups_cut > 0 or kills < 40  # a backup takes a small part of the time
    assert report.worst_ready_processor_seconds <= report.worst_ready_seconds < 20

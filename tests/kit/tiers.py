"""The tiers of the tests: unit tests (`--fast`), each behaviour once, and the sweeps (`--sweep`).

Tests with the mark `slow` run in a sweep only; a test with the fixture `tier` does more there.
Whatever is random has a fixed seed, and in a sweep one that the header shows and that `--seed`
sets. Unit tests are found by what they import and by the fixtures that they use.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

FIXED_SEED = 7
FAST_EXAMPLES = 30  # of Hypothesis, which tries 100 by itself

_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

# What no unit test needs: torch, Ray, a browser, a database, a server or another process.
_NO_UNIT = re.compile(
    r"^ *(?:from|import) (?:torch|ray|playwright|psycopg|redis"
    r"|subprocess|multiprocessing|benchmarks"
    r"|training|tests\.kit\.(?:browser|process_fixtures|"
    r"redis_server|postgresql|make_checkpoints|search_page_fixtures))\b",
    re.MULTILINE,
)
_NO_UNIT_FOLDERS = ("browser", "clients", "contract", "deploy", "e2e", "reliability")
_NO_UNIT_FIXTURES = {
    *("chromium", "longmatch_process", "redis_server", "serve", "small_disk"),
    *("start_longmatch", "copy_checkpoint"),
}

T = TypeVar("T")


@dataclass(frozen=True)
class Tier:
    """What a test may spend.

    Attributes:
        sweep: whether all cases are to be tried.
        seed: of whatever the test takes at random.
    """

    sweep: bool
    seed: int

    def some(self, cases: Sequence[T]) -> Sequence[T]:
        """Return all cases, or the first, the middle and the last."""
        if self.sweep or len(cases) < 3:
            return cases
        return [cases[0], cases[len(cases) // 2], cases[-1]]

    def numbers(self, stop: int) -> Iterator[int]:
        """Return 1, 2, 3 and so on below `stop`, or 1, 2, 4, 8: each n-th call that may fail."""
        number = 1
        while number < stop:
            yield number
            number += 1 if self.sweep else number


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("longmatch")
    group.addoption("--fast", action="store_true", help="Run unit tests alone.")
    group.addoption("--sweep", action="store_true", help="Run the slow tests, too, and all cases.")
    group.addoption("--seed", type=int, help="Seed of the sweeps; by default another each time.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed."""
    sweep = config.getoption("--sweep")
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32) if sweep else FIXED_SEED
    if sweep and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = config.option.seed
    # No example has a deadline: a busy machine may stop a process for a second.
    common = settings(deadline=None, print_blob=True, suppress_health_check=_CHECKS)
    settings.register_profile("fast", common, derandomize=True, max_examples=FAST_EXAMPLES)
    settings.register_profile("sweep", common)
    settings.load_profile("sweep" if sweep else "fast")


def pytest_report_header(config: pytest.Config) -> str:
    """Show what repeats this run."""
    return f"seed: {config.option.seed}{' (--sweep)' if config.option.sweep else ''}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without unit tests, which take long to import."""
    if not config.getoption("--fast"):
        return None
    if collection_path.is_dir():
        return collection_path.name in _NO_UNIT_FOLDERS or None
    return bool(_NO_UNIT.search(collection_path.read_text(encoding="utf-8"))) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other tiers."""
    kept = [item for item in items if _is_of_tier(item, config)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=sorted(set(items) - set(kept), key=items.index))
        items[:] = kept


def _is_of_tier(item: pytest.Item, config: pytest.Config) -> bool:
    if config.getoption("--fast") and _NO_UNIT_FIXTURES & set(getattr(item, "fixturenames", ())):
        return False
    return bool(config.getoption("--sweep")) or not item.get_closest_marker("slow")


@pytest.fixture(scope="session")
def tier(pytestconfig: pytest.Config) -> Tier:
    """What a test may spend in this run."""
    return Tier(sweep=pytestconfig.getoption("--sweep"), seed=pytestconfig.option.seed)

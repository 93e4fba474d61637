"""The two tiers of the tests: each behaviour once, and the sweeps, which `--sweep` adds.

Tests with the mark `slow` run in the second only; a test with the fixture `tier` does more there.
Whatever is random has a fixed seed in the first, and in the second one that the header shows and
that `--seed` sets.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import settings

FIXED_SEED = 7
FAST_EXAMPLES = 30  # of Hypothesis, which tries 100 by itself

# Several workers end at about the same time where the last files take seconds, not a minute each.
LONGEST_FIRST = ("e2e", "browser", "reliability", "index/distributed", "service/cli", "training")

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
    group.addoption("--sweep", action="store_true", help="Run the slow tests, too, and all cases.")
    group.addoption("--seed", type=int, help="Seed of the sweeps; by default another each time.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, unless this is a worker: those get that of the process that started them."""
    sweep = config.getoption("--sweep")
    given = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    if given is None:
        given = random.SystemRandom().randrange(2**32) if sweep else FIXED_SEED
    config.option.seed = given
    if sweep and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = given
    settings.register_profile("fast", derandomize=True, max_examples=FAST_EXAMPLES)
    settings.register_profile("sweep", print_blob=True)
    settings.load_profile("sweep" if sweep else "fast")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a worker of pytest-xdist."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    """Show what repeats this run."""
    return f"seed: {config.option.seed}{' (--sweep)' if config.option.sweep else ''}"


def rank(test: str) -> int:
    """Return the place of the folder of a test among those that are run before all others."""
    places = (n for n, folder in enumerate(LONGEST_FIRST) if test.startswith(f"tests/{folder}/"))
    return next(places, len(LONGEST_FIRST))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first, and leave the slow tests out where no sweep is asked for."""
    items.sort(key=lambda item: rank(item.nodeid))
    if config.getoption("--sweep"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session")
def tier(pytestconfig: pytest.Config) -> Tier:
    """What a test may spend in this run."""
    return Tier(sweep=pytestconfig.getoption("--sweep"), seed=pytestconfig.option.seed)

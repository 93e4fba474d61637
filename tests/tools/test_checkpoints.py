"""The cache of tiny checkpoints: created once, whole, and again when a source changes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tools.checkpoints import SOURCES, CheckpointCache, sources_digest


class CountingCache(CheckpointCache):
    """Makes a file in place of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made: list[str] = []
        self.failures = 0

    def make(self, name: str, target: Path) -> None:
        target.mkdir()
        (target / "weights").write_text("half")
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        self.made.append(name)
        (target / "weights").write_text("whole")


def test_a_checkpoint_is_made_once_however_many_ask(tmp_path: Path) -> None:
    caches = [CountingCache(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda cache: cache.find("smith"), caches))
    assert sum(len(cache.made) for cache in caches) == 1
    assert len(set(found)) == 1
    assert (found[0] / "weights").read_text() == "whole"


def test_half_a_checkpoint_is_never_found(tmp_path: Path) -> None:
    cache = CountingCache(tmp_path)
    cache.failures = 1
    with pytest.raises(OSError, match="full"):
        cache.find("smith")
    assert (cache.find("smith") / "weights").read_text() == "whole"


def test_a_copy_is_the_tests_own(copy_checkpoint: Callable[[str], Path]) -> None:
    first, second = copy_checkpoint("bert"), copy_checkpoint("bert")
    (first / "config.json").write_text("changed")
    assert (second / "config.json").read_text() != "changed"
    assert (copy_checkpoint("bert") / "config.json").read_text() != "changed"


def test_a_changed_source_is_another_digest(tmp_path: Path) -> None:
    for source in SOURCES:
        path = tmp_path / source.replace("**", "deep").replace("*.py", "module.py").replace(
            "*", "s"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    digests = {sources_digest(tmp_path)}
    for changed in sorted(tmp_path.rglob("*.py")):
        changed.write_text("x = 1\n")
        digests.add(sources_digest(tmp_path))
    assert len(digests) == 1 + len(SOURCES)

"""A small disk of its own: a file system in memory of a few MB, which a test fills to the brim.

To mount takes the rights of root, or sudo without a password, as in CI.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_BLOCK = 4096


class SmallDisk:
    """A mounted file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Write until there is no room for one more byte."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (2**20, _BLOCK, 1):
                while True:
                    try:
                        file.write(b"x" * size)
                    except OSError:
                        break

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Mount disks of so many MiB."""
    mounted: list[Path] = []

    def mount(megabytes: int) -> SmallDisk:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        options = f"size={megabytes}m,mode=0777"
        _as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path))
        mounted.append(path)
        return SmallDisk(path)

    yield mount
    for path in mounted:
        _as_root("umount", "--lazy", str(path))


def _as_root(*command: str) -> None:
    """Run a command as root: in CI by sudo, which asks for no password there."""
    with_rights = command if os.geteuid() == 0 else ("sudo", "--non-interactive", *command)
    subprocess.run(with_rights, check=True, capture_output=True)

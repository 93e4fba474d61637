"""A small disk of its own: a file system in memory of a few MB, which a test fills to the brim.

To mount one takes the rights of root, or sudo without a password. In a container without them,
/dev/shm is such a disk.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_BLOCK = 4096
_SHARED = Path("/dev/shm")
_SMALL = 2**30  # bytes that can be filled in a moment


class SmallDisk:
    """A folder on a small file system."""

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

    def protect(self) -> None:
        """Let nothing be written from now on, by root neither where it was mounted."""
        if not _as_root("mount", "-o", "remount,ro", str(self.path)):
            for path in (self.path, *self.path.rglob("*")):
                path.chmod(path.stat().st_mode & 0o555)

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Make disks of so many MiB."""
    mounted: list[Path] = []
    folders: list[Path] = []

    def make(megabytes: int) -> SmallDisk:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        options = f"size={megabytes}m,mode=0777"
        if _as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)):
            mounted.append(path)
            return SmallDisk(path)
        if shutil.disk_usage(_SHARED).total > _SMALL:
            pytest.fail("nothing can be mounted here: run this as root, or with sudo")
        folders.append(Path(tempfile.mkdtemp(dir=_SHARED)))
        return SmallDisk(folders[-1])

    yield make
    for path in mounted:
        _as_root("umount", "--lazy", str(path))
    for path in folders:
        shutil.rmtree(path)


def _as_root(*command: str) -> bool:
    """Run a command as root, and return whether it worked."""
    with_rights = command if os.geteuid() == 0 else ("sudo", "--non-interactive", *command)
    try:
        return subprocess.run(with_rights, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:  # there is no sudo
        return False

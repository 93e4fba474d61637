"""Backups in the kill check: written until the process is killed, and examined afterwards."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.reliability.documents import FINGERPRINT, contents, index_problems, open_numbered
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from index.directory.backup import restore_backup, verify_backup, write_backup
from index.errors import BackupError

_ENDINGS = (".unfinished", ".finished")

Versions = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BackupsFound:
    """What a killed process left: complete and unfinished backups, and descriptions of problems."""

    whole: int
    cut: int
    wrong: tuple[str, ...]


def numbered_checkpoint() -> Checkpoint:
    """Return a checkpoint that owns the vectors of numbered documents."""
    shipped = load_checkpoint(DEFAULT_CHECKPOINT)
    return replace(shipped, name="numbered", fingerprint=FINGERPRINT)


def backup_path(data: Path, number: int) -> Path:
    """Return where to write a backup of a data directory; every other one is a single file."""
    return data.with_name("backups") / (f"b{number}.tar" if number % 2 else f"b{number}")


def examine_backups(
    data: Path, states: Sequence[Versions], checkpoint: Checkpoint, some: Sequence[str]
) -> BackupsFound:
    """Examine the folder of backups after a kill, and remove it.

    A backup under its final name must be complete and hold the state of one moment; where one was
    interrupted, another must succeed in its place and hold the present state.

    Args:
        data: the data directory.
        states: versions by name at every moment of the process that was killed, the present last.
        checkpoint: of the data.
        some: names to search for in the restored directory.
    """
    folder = data.with_name("backups")
    folder.mkdir(exist_ok=True)
    found = sorted(folder.iterdir())
    whole = [path for path in found if not path.name.startswith(".")]
    cut = {path.with_name(_target_name(path)) for path in found if path not in whole}
    wrong = [problem for path in whole for problem in _problems(path, states, checkpoint, some)]
    for path in cut - set(whole):
        write_backup(data, path, checkpoint)
        wrong += _problems(path, states[-1:], checkpoint, some)
    wrong += [f"{path.name} was left behind" for path in folder.glob(".*")]
    shutil.rmtree(folder)
    return BackupsFound(len(whole), len(cut), tuple(wrong))


def _target_name(path: Path) -> str:
    name = path.name.removeprefix(".")
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def _problems(
    backup: Path, states: Sequence[Versions], checkpoint: Checkpoint, some: Sequence[str]
) -> list[str]:
    """Restore a backup and compare; return its problems."""
    restored = backup.with_name("restored")
    try:
        verify_backup(backup)
        restore_backup(backup, restored, checkpoint)
    except BackupError as error:
        return [f"{backup.name} has its final name but is incomplete: {error}"]
    try:
        with closing(open_numbered(restored)) as data:
            held, twice = contents(data)
            problems = index_problems(data, [name for name in some if name in held], held)
    finally:
        shutil.rmtree(restored)
    if twice or held not in states:
        problems.append(f"{backup.name} holds a state that never existed")
    return problems

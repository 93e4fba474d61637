"""R1: `kill -9` at random moments of upserts, deletes, trainings, publishing and backups.

A worker changes a data directory and reports each change before it starts and after it is
acknowledged. After a kill every acknowledged change must be present, and the one in flight either
completely or not at all. A backup under its final name must be complete, and an interrupted one
must not prevent the next.
"""

import multiprocessing
import random
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from index.directory.backup import restore_backup, write_backup
from index.directory.data_directory import DataDirectory
from index.errors import BackupError
from index.vectors.lists import ONE_LIST_BELOW
from tests.kit.tiers import Tier
from tests.kit.waiting import TIMEOUT_S
from tests.reliability.numbered_documents import (
    contents,
    entry_of,
    fill,
    index_problems,
    open_numbered,
)

_CHECKED_BY_SEARCH = 40
_KILLED_WHILE_OPENING = 0.15
_KILLED_LATE = 0.25  # when a backup of many documents may be complete
_FORKING = multiprocessing.get_context("forkserver")  # processes start with the modules imported
_FORKING.set_forkserver_preload(["tests.reliability.kill_programme"])

Versions = dict[str, int]


@dataclass(slots=True)
class KillReport:
    """Counts of a run; `lost`, `back`, `twice` and `wrong` must all be zero or empty."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    back: int = 0
    twice: int = 0
    backups_cut: int = 0
    worst_ready_seconds: float = 0.0
    worst_ready_processor_seconds: float = 0.0
    generations: int = 1
    wrong: list[str] = field(default_factory=list)


class KillCheck:
    """A data directory, its acknowledged changes, and the problems found."""

    def __init__(self, path: Path, tier: Tier, documents: int) -> None:
        """Fill a new data directory; with the default number of documents it has lists."""
        self._path = path
        self._tier = tier
        self._random = random.Random(tier.seed)
        self._names = [f"d{number}" for number in range(documents)]
        with closing(open_numbered(path)) as data:
            fill(data, self._names)
        self._versions: Versions = dict.fromkeys(self._names, 0)
        self._states: list[Versions] = []  # since the worker began
        self.report = KillReport()

    def kill_once(self, number: int) -> None:
        """Let a worker change the directory, kill it, and compare."""
        self.report.kills += 1
        receiver, sender = _FORKING.Pipe(duplex=False)
        given = (self._path, self._tier.seed * 10_000 + number, self._names, sender)
        worker = _FORKING.Process(target=change_until_killed, args=given, daemon=True)
        worker.start()
        sender.close()
        if self._random.random() < _KILLED_WHILE_OPENING:
            time.sleep(self._random.uniform(0.0, 0.2))
        else:
            receiver.poll(TIMEOUT_S)  # until it is ready
            late = self._random.random() < _KILLED_LATE
            time.sleep(self._random.uniform(0.5, 3.0) if late else self._random.uniform(0.01, 0.5))
        worker.kill()
        worker.join()
        begun = self._follow(receiver)
        receiver.close()
        self._compare(begun)

    def _follow(self, receiver: Connection) -> dict[str, int | None]:
        """Apply the acknowledged changes, and return the change in flight."""
        begun: dict[str, int | None] = {}
        self._states = [self._versions]
        try:
            while True:
                kind, change = receiver.recv()
                if kind == READY:
                    self._opened_in(change)
                elif kind == BEGUN:
                    begun = change
                elif kind == DONE:
                    self._versions = _changed(self._versions, begun)
                    self._states.append(self._versions)
                    self.report.acknowledged += 1
                    begun = {}
        except EOFError:
            return begun

    def _opened_in(self, seconds: tuple[float, float]) -> None:
        report = self.report
        report.worst_ready_seconds = max(report.worst_ready_seconds, seconds[0])
        report.worst_ready_processor_seconds = max(report.worst_ready_processor_seconds, seconds[1])

    def _compare(self, begun: dict[str, int | None]) -> None:
        data, seconds = open_and_measure(self._path)
        try:
            self._opened_in(seconds)
            found, twice = contents(data)
            expected = self._versions
            if begun and found == _changed(expected, begun):
                expected = found
            self.report.twice += twice
            self.report.lost += sum(found.get(name, -1) < at for name, at in expected.items())
            self.report.back += len(found.keys() - expected.keys())
            if found != expected:
                self.report.wrong.append(f"{len(found)} documents, {len(expected)} expected")
            some = self._random.sample(sorted(found), min(_CHECKED_BY_SEARCH, len(found)))
            self.report.wrong += index_problems(data, some, found)
            self._versions = found
            self._states.append(found)
            self.report.generations = data.index.manifest.generation
            self._compare_backups(some)  # while it is open, as a server makes them
        finally:
            data.close()

    def _compare_backups(self, some: list[str]) -> None:
        backups = examine_backups(self._path, self._states, some, self._tier)
        self.report.backups_cut += backups.cut
        self.report.wrong += backups.wrong


def run_kills(
    path: Path, kills: int, tier: Tier, documents: int = ONE_LIST_BELOW + 1_500
) -> KillReport:
    """Run the check in a new data directory."""
    check = KillCheck(path, tier, documents)
    for number in range(kills):
        check.kill_once(number)
    return check.report


def _changed(versions: Versions, change: dict[str, int | None]) -> Versions:
    changed = {name: at for name, at in versions.items() if name not in change}
    return changed | {name: at for name, at in change.items() if at is not None}


@dataclass(frozen=True, slots=True)
class BackupsFound:
    """What a killed process left: unfinished backups, and descriptions of problems."""

    cut: int
    wrong: tuple[str, ...]


def backup_path(data: Path, number: int) -> Path:
    """Return where to write a backup of a data directory."""
    return data.with_name("backups") / f"b{number}"


def examine_backups(
    data: Path, states: Sequence[Mapping[str, int]], some: Sequence[str], tier: Tier
) -> BackupsFound:
    """Examine the folder of backups after a kill, and remove it.

    A backup under its final name must be complete and hold the state of one moment; where one was
    interrupted, another must succeed in its place and hold the present state.

    Args:
        data: the data directory.
        states: versions by name at every moment of the process that was killed, the present last.
        some: names to search for in the restored directory.
        tier: whether to restore all of those that are complete.
    """
    folder = data.with_name("backups")
    folder.mkdir(exist_ok=True)
    found = sorted(folder.iterdir())
    whole = [path for path in found if not path.name.startswith(".")]
    cut = {path.with_name(path.stem.removeprefix(".")) for path in found if path not in whole}
    wrong = [problem for path in tier.some(whole) for problem in _problems(path, states, some)]
    for path in cut - set(whole):
        write_backup(data, path)
        wrong += _problems(path, states[-1:], some)
    wrong += [f"{path.name} was left behind" for path in folder.glob(".*")]
    shutil.rmtree(folder)
    return BackupsFound(len(cut), tuple(wrong))


def _problems(backup: Path, states: Sequence[Mapping[str, int]], some: Sequence[str]) -> list[str]:
    """Restore a backup and compare; return its problems."""
    restored = backup.with_name("restored")
    try:
        restore_backup(backup, restored)
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


READY, BEGUN, DONE = "ready", "begun", "done"


def change_until_killed(path: Path, seed: int, names: list[str], parent: Connection) -> None:
    """Change a data directory until killed, reporting each change before and after.

    Args:
        path: the data directory.
        seed: of the changes.
        names: documents that may be put and deleted.
        parent: receives (READY, wall-clock and CPU seconds of opening), (BEGUN, versions by name,
            None for a deletion) and (DONE, None).
    """
    data, seconds = open_and_measure(path)
    parent.send((READY, seconds))
    threading.Thread(target=_maintain, args=(data, seed), daemon=True).start()
    chance = random.Random(seed)
    version = seed * 1_000_000
    while True:
        version += 1
        chosen = chance.sample(names, chance.randint(1, 6))
        deletes = chance.random() < 0.3
        parent.send((BEGUN, dict.fromkeys(chosen, None if deletes else version)))
        if deletes:
            change = data.store.delete(chosen)
        else:
            change = data.store.put([entry_of(name, version) for name in chosen])
        data.index.apply(change)
        parent.send((DONE, None))


def open_and_measure(path: Path) -> tuple[DataDirectory, tuple[float, float]]:
    """Open a data directory; return it with the wall-clock and CPU seconds."""
    started, computed = time.perf_counter(), time.process_time()
    data = open_numbered(path)
    return data, (time.perf_counter() - started, time.process_time() - computed)


def _maintain(data: DataDirectory, seed: int) -> None:
    """Train, publish and back up, one after the other in any order."""
    chance = random.Random(seed)
    backups = 0
    while True:
        work = chance.choice(["retrain", "publish", "back up"])
        if work == "retrain":
            data.index.retrain(0.0)
        elif work == "publish":
            data.index.publish()
        else:
            write_backup(data.path, backup_path(data.path, backups))
            backups += 1

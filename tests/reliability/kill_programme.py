"""R1: `kill -9` at random moments of upserts, deletes, trainings, publishing and backups.

The worker reports each change before it starts and after it is acknowledged. After a kill every
acknowledged change must be present, and the one in flight either completely or not at all. A backup
under its final name must be complete, and an interrupted one must not prevent the next.
"""

import multiprocessing
import random
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.reliability.documents import contents, fill, index_problems, open_numbered
from benchmarks.reliability.kill_backups import examine_backups, numbered_checkpoint
from benchmarks.reliability.kill_worker import (
    BEGUN,
    DONE,
    READY,
    change_until_killed,
    open_and_measure,
)
from index.vectors.lists import ONE_LIST_BELOW

_CHECKED_BY_SEARCH = 40
_KILLED_WHILE_OPENING = 0.15
_KILLED_LATE = 0.25  # when a backup of many documents may be complete
_PATIENCE = 60.0
_FORKING = multiprocessing.get_context("forkserver")  # processes start with the modules imported
_FORKING.set_forkserver_preload(["benchmarks.reliability.kill_worker"])

Versions = dict[str, int]


@dataclass(frozen=True, slots=True)
class KillReport:
    """Counts of a run; `lost`, `back`, `twice` and `wrong` must all be zero or empty."""

    seed: int
    kills: int
    documents: int
    acknowledged: int
    in_flight: int
    lost: int
    back: int
    twice: int
    wrong: tuple[str, ...]
    backups: int
    backups_cut: int
    worst_ready_seconds: float
    worst_ready_processor_seconds: float
    generations: int

    def as_json(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        return asdict(self)


@dataclass(slots=True)
class _Tally:
    acknowledged: int = 0
    in_flight: int = 0
    lost: int = 0
    back: int = 0
    twice: int = 0
    backups: int = 0
    backups_cut: int = 0
    worst_ready_seconds: float = 0.0
    worst_ready_processor_seconds: float = 0.0


class KillCheck:
    """A data directory, its acknowledged changes, and the problems found."""

    def __init__(self, path: Path, seed: int, documents: int) -> None:
        """Fill a new data directory; with the default number of documents it has lists."""
        self._path = path
        self._seed = seed
        self._random = random.Random(seed)
        self._names = [f"d{number}" for number in range(documents)]
        data = open_numbered(path)
        try:
            fill(data, self._names)
        finally:
            data.close()
        self._versions: Versions = dict.fromkeys(self._names, 0)
        self._states: list[Versions] = []  # since the worker began
        self._checkpoint = numbered_checkpoint()
        self._tally = _Tally()
        self._wrong: list[str] = []
        self._generation = 1

    def kill_once(self, number: int) -> None:
        """Let a worker change the directory, kill it, and compare."""
        receiver, sender = _FORKING.Pipe(duplex=False)
        given = (self._path, self._seed * 10_000 + number, self._names, sender)
        worker = _FORKING.Process(target=change_until_killed, args=given, daemon=True)
        worker.start()
        sender.close()
        if self._random.random() < _KILLED_WHILE_OPENING:
            time.sleep(self._random.uniform(0.0, 0.2))
        else:
            receiver.poll(_PATIENCE)  # until it is ready
            late = self._random.random() < _KILLED_LATE
            time.sleep(self._random.uniform(0.5, 3.0) if late else self._random.uniform(0.01, 0.5))
        worker.kill()
        worker.join()
        begun = self._follow(receiver)
        receiver.close()
        self._compare(begun)

    def report(self, kills: int) -> KillReport:
        """Return the report."""
        return KillReport(
            seed=self._seed,
            kills=kills,
            documents=len(self._versions),
            wrong=tuple(self._wrong[:20]),
            generations=self._generation,
            **asdict(self._tally),
        )

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
                    self._tally.acknowledged += 1
                    begun = {}
        except EOFError:
            return begun

    def _opened_in(self, seconds: tuple[float, float]) -> None:
        tally = self._tally
        tally.worst_ready_seconds = max(tally.worst_ready_seconds, seconds[0])
        tally.worst_ready_processor_seconds = max(tally.worst_ready_processor_seconds, seconds[1])

    def _compare(self, begun: dict[str, int | None]) -> None:
        data, seconds = open_and_measure(self._path)
        try:
            self._opened_in(seconds)
            found, twice = contents(data)
            expected = self._versions
            if begun and found == _changed(expected, begun):
                self._tally.in_flight += 1
                expected = found
            self._tally.twice += twice
            self._tally.lost += sum(found.get(name, -1) < at for name, at in expected.items())
            self._tally.back += len(found.keys() - expected.keys())
            if found != expected:
                self._wrong.append(f"{len(found)} documents, {len(expected)} expected")
            some = self._random.sample(sorted(found), min(_CHECKED_BY_SEARCH, len(found)))
            self._wrong += index_problems(data, some, found)
            self._versions = found
            self._states.append(found)
            self._generation = data.index.generation
            self._compare_backups(some)  # beside a server, as they are made
        finally:
            data.close()

    def _compare_backups(self, some: list[str]) -> None:
        backups = examine_backups(self._path, self._states, self._checkpoint, some)
        self._tally.backups += backups.whole
        self._tally.backups_cut += backups.cut
        self._wrong += backups.wrong


def run_kills(
    path: Path, kills: int, seed: int, documents: int = ONE_LIST_BELOW + 1_500
) -> KillReport:
    """Run the check in a new data directory."""
    check = KillCheck(path, seed, documents)
    for number in range(kills):
        check.kill_once(number)
    return check.report(kills)


def _changed(versions: Versions, change: dict[str, int | None]) -> Versions:
    changed = {name: at for name, at in versions.items() if name not in change}
    return changed | {name: at for name, at in change.items() if at is not None}

"""The process that the kill check kills: it changes a data directory until then."""

import random
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.reliability.documents import entry_of, open_numbered
from benchmarks.reliability.kill_backups import backup_path, numbered_checkpoint
from index.directory.backup import write_backup
from index.directory.data_directory import DataDirectory

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
    """Train, publish, back up and give disk space back, one after the other in any order."""
    chance = random.Random(seed)
    checkpoint = numbered_checkpoint()
    backups = 0
    while True:
        work = chance.choice(["retrain", "publish", "reclaim", "back up"])
        if work == "retrain":
            data.index.retrain(0.0)
        elif work == "publish":
            data.index.publish()
        elif work == "back up":
            write_backup(data.path, backup_path(data.path, backups), checkpoint)
            backups += 1
        else:
            data.store.reclaim(20)

"""The process that the kill programme kills: it changes a data directory until it is gone."""

import random
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.numbered_documents import entry_of, open_numbered
from index.data_directory import DataDirectory

READY, BEGUN, DONE = "ready", "begun", "done"


def change_until_killed(path: Path, seed: int, names: list[str], parent: Connection) -> None:
    """Change a data directory without end and tell the parent of each change, before and after.

    Args:
        path: the data directory.
        seed: of the changes.
        names: documents that may be put and deleted.
        parent: hears (READY, seconds of opening), (BEGUN, versions by name, None for a deletion)
            and (DONE, None).
    """
    started = time.perf_counter()
    data = open_numbered(path)
    parent.send((READY, time.perf_counter() - started))
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


def _maintain(data: DataDirectory, seed: int) -> None:
    """Train, publish and give disk space back, one after the other in any order."""
    chance = random.Random(seed)
    while True:
        work = chance.choice(["retrain", "publish", "reclaim"])
        if work == "retrain":
            data.index.retrain(0.0)
        elif work == "publish":
            data.index.publish()
        else:
            data.store.reclaim(20)

"""R5: searchers and writers at once while generations are swapped continuously.

Every answer names the generation and the sequence that it was searched in. The writers keep a
history, from which brute force over the state at that sequence gives the expected answer.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32
from index.directory.data_directory import DataDirectory
from index.store.change_log import Changes
from index.vectors.lists import ONE_LIST_BELOW
from index.vectors.recall import share_found
from index.vectors.vector_index import SearchResult
from tests.kit.waiting import TIMEOUT_S
from tests.reliability.numbered_documents import (
    DIMENSION,
    entry_of,
    fill,
    open_numbered,
    random_unit_vector,
)

K = 10
ENOUGH = 4  # generations; a slow machine takes longer for them
LONGEST = 120.0
_NEVER = np.iinfo(np.int64).max
_ROWS = 1_000_000  # vectors that the history has room for
_PAUSE = 0.002  # between two requests of a client
_CHANGING = 200  # documents: so few that some deletions find nothing


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """Duration, and number of threads of each kind."""

    seconds: float
    searchers: int
    writers: int
    seed: int


@dataclass(frozen=True, slots=True)
class SwapReport:
    """Counts of a run, and descriptions of the problems found."""

    answers: int
    exact_answers: int
    recall_at_10: float
    changes: int
    generations: int
    generations_named: int
    wrong: tuple[str, ...]


class History:
    """Every vector ever added, with the sequences that added and removed it."""

    def __init__(self) -> None:
        self._vectors = np.zeros((_ROWS, DIMENSION), dtype=np.float32)
        self._added = np.full(_ROWS, _NEVER)
        self._removed = np.full(_ROWS, _NEVER)
        self._highest = 0
        self._known: set[int] = set()
        self._complete_to = 0
        self._grown = threading.Condition()

    def record(self, change: Changes, vectors: Float32) -> None:
        """Record a change with the vectors Float32[N, DIMENSION] that it added.

        One that changed nothing has the sequence of a change that is perhaps not recorded yet.
        """
        if not change.changed and not change.removed:
            return
        with self._grown:
            self._vectors[change.changed] = vectors
            self._added[change.changed] = change.sequence
            self._removed[change.removed] = change.sequence
            self._highest = max([self._highest, *change.changed])
            self._known.add(change.sequence)
            while self._complete_to + 1 in self._known:
                self._complete_to += 1
                self._known.remove(self._complete_to)
            self._grown.notify_all()

    def begin(self, change: Changes, vectors: Float32) -> None:
        """Record the first contents, which several changes have put."""
        self._complete_to = change.sequence - 1
        self.record(change, vectors)

    def cosines(self, query: Float32, sequence: int) -> Float32:
        """Return cosines Float32[M] by vector id as of a sequence, -inf for absent vectors.

        Waits until all changes up to that sequence are recorded.
        """
        with self._grown:
            if not self._grown.wait_for(lambda: self._complete_to >= sequence, timeout=TIMEOUT_S):
                raise TimeoutError(f"sequence {sequence} was never recorded")
            stop = self._highest + 1
            alive = (self._added[:stop] <= sequence) & (sequence < self._removed[:stop])
        cosines: Float32 = self._vectors[:stop] @ query
        cosines[~alive] = -np.inf
        return cosines


class SwapCheck:
    """A data directory used by many threads, and the problems they found."""

    def __init__(self, data: DataDirectory, plan: SwapPlan) -> None:
        self._data = data
        self._plan = plan
        self._history = History()
        names = [f"d{number}" for number in range(ONE_LIST_BELOW + 200)]
        fill(data, names)
        sequence, ids = data.store.log.added_after(0)
        self._history.begin(Changes(sequence, ids.tolist(), []), data.store.vectors(ids)[1])
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._recalls: list[float] = []
        self._published = {data.index.manifest.generation}
        self._named: set[int] = set()
        self._wrong: list[str] = []

    def run(self) -> SwapReport:
        """Run all threads for the time of the plan."""
        plan = self._plan
        work: list[Callable[[], None]] = [self._swap]
        work += [self._searcher(number) for number in range(plan.searchers)]
        work += [self._writer(number) for number in range(plan.writers)]
        threads = [threading.Thread(target=self._guarded, args=(task,)) for task in work]
        for thread in threads:
            thread.start()
        started = time.monotonic()
        while not self._ended.wait(0.02):
            lasted = time.monotonic() - started
            if lasted >= plan.seconds and (len(self._published) >= ENOUGH or lasted >= LONGEST):
                break
        self._ended.set()
        for thread in threads:
            thread.join()
        if not self._named <= self._published:
            self._wrong.append(f"unknown generations: {self._named - self._published}")
        return SwapReport(
            answers=self._counts["answers"],
            exact_answers=self._counts["exact"],
            recall_at_10=float(np.mean(self._recalls)),
            changes=self._counts["changes"],
            generations=len(self._published),
            generations_named=len(self._named),
            wrong=tuple(self._wrong[:20]),
        )

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while not self._ended.is_set():
                work()
        except Exception as error:  # any exception is a failure
            self._wrong.append(f"{type(error).__name__}: {error}")
            self._ended.set()

    def _searcher(self, number: int) -> Callable[[], None]:
        numbers = np.random.default_rng((self._plan.seed, number))
        last = (0, 0)

        def search() -> None:
            nonlocal last
            query = random_unit_vector(numbers)
            exact = bool(numbers.random() < 0.5)
            index = self._data.index
            found = index.search(query[None], K, nprobe=1_000_000 if exact else None)
            self._check(query, found, exact=exact)
            if (found.generation, found.sequence) < last or found.sequence < last[1]:
                self._wrong.append(f"{found.generation}, {found.sequence} after {last}")
            last = (found.generation, found.sequence)
            with self._lock:
                self._counts["answers"] += 1
                self._counts["exact"] += exact
                self._named.add(found.generation)
            time.sleep(_PAUSE)

        return search

    def _check(self, query: Float32, found: SearchResult, *, exact: bool) -> None:
        cosines = self._history.cosines(query, found.sequence)
        ids, scores = found.ids[0], found.scores[0]
        if ids.min() < 0 or ids.max() >= len(cosines) or len(set(ids.tolist())) < K:
            self._wrong.append(f"sequence {found.sequence}: ids {ids.tolist()}")
        elif not np.allclose(cosines[ids], scores, atol=1e-5):
            self._wrong.append(f"sequence {found.sequence}: a document that was not there")
        best = np.sort(cosines)[: -K - 1 : -1]
        if exact and not np.allclose(scores, best, atol=1e-5):
            self._wrong.append(f"sequence {found.sequence}: a document is missing")
        if not exact:
            with self._lock:
                self._recalls.append(share_found(scores[None], best[None]))

    def _writer(self, number: int) -> Callable[[], None]:
        """Make a writer with its own documents."""
        chance = random.Random(f"{self._plan.seed} {number}")
        mine = [f"d{document}" for document in range(number, _CHANGING, self._plan.writers)]
        version = 0

        def write() -> None:
            nonlocal version
            version += 1
            store, index = self._data.store, self._data.index
            names = chance.sample(mine, chance.randint(1, 4))
            if chance.random() < 0.25:
                change = store.delete(names)
                vectors = np.empty((0, DIMENSION), dtype=np.float32)
            else:
                entries = [entry_of(name, version) for name in names]
                change = store.put(entries)
                vectors = np.stack([entry.vector for entry in entries])
            time.sleep(_PAUSE)  # others may catch up with the change before it is recorded
            self._history.record(change, vectors)
            index.apply(change)
            if index.search(vectors[:1] if len(vectors) else np.eye(1, DIMENSION, dtype=np.float32),
                            1).sequence < change.sequence:  # fmt: skip
                self._wrong.append(f"the change {change.sequence} was not visible at once")
            with self._lock:
                self._counts["changes"] += 1
            time.sleep(5 * _PAUSE)

        return write

    def _swap(self) -> None:
        index = self._data.index
        before = index.manifest.generation
        if self._counts["swaps"] % 3 == 2:
            index.publish()
        else:
            index.retrain(0.0)
        self._counts["swaps"] += 1
        if index.manifest.generation != before + 1:
            self._wrong.append(f"generation {index.vectors.generation} after {before}")
        self._published.add(index.manifest.generation)


def run_swaps(path: Path, plan: SwapPlan) -> SwapReport:
    """Run the check in a new data directory."""
    with closing(open_numbered(path)) as data:
        return SwapCheck(data, plan).run()

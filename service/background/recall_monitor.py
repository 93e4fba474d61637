"""Online recall: a small share of real queries is repeated with exact search."""

import logging
import random
import threading
from collections import deque
from contextlib import suppress
from queue import Full, Queue

import numpy as np

from encoder.arrays import Float32
from index.vectors.lists import adapted_nprobe
from index.vectors.live_index import LiveIndex
from index.vectors.recall import NEIGHBOURS, share_found
from service.metrics import CollectionMetrics
from service.threads import lower_priority

SAMPLE_SHARE = 0.01  # of the searches: an exact one takes as long as a hundred others
QUEUED = 32  # more are dropped: an exact search of many vectors is slow
WINDOW = 50  # searches that are measured before nprobe may change
_ATTEMPTS = 3  # to search while the index does not change

_log = logging.getLogger(__name__)


class RecallMonitor:
    """One thread that measures the recall of searches and adapts nprobe to hold the target."""

    def __init__(
        self,
        index: LiveIndex,
        metrics: CollectionMetrics,
        target: float,
        share: float = SAMPLE_SHARE,
    ) -> None:
        """Prepare to hold the recall of an index at `target`; measure this share of searches."""
        self._index = index
        self._metrics = metrics
        self._share = share
        self._target = target
        self._chosen: Queue[tuple[Float32, bool] | None] = Queue(QUEUED)
        self._recalls: deque[float] = deque(maxlen=WINDOW)
        self._measured_at = (0, 0)  # generation and nprobe of these recalls
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recall", daemon=True)
        self._random = random.Random()  # noqa: S311 - which queries are chosen is no secret

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; queued queries are not measured."""
        self._closing.set()
        with suppress(Full):  # then a queued query wakes the thread
            self._chosen.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join()

    def offer(self, vector: Float32, *, stored: bool) -> None:
        """Sample a query that was searched, with a small probability; never waits.

        Args:
            vector: of the query, Float32[dimension].
            stored: whether it is in the index itself, so that its first neighbour does not count.
        """
        if self._index.nlist == 1 or self._random.random() >= self._share:
            return
        try:
            self._chosen.put_nowait((vector, stored))
        except Full:
            self._metrics.recall_samples.labels("dropped").inc()

    def _run(self) -> None:
        lower_priority()
        while (chosen := self._chosen.get()) is not None and not self._closing.is_set():
            try:
                self._measure(*chosen)
            except Exception:  # the thread must survive a query that fails
                _log.exception("the recall of a query could not be measured")

    def _measure(self, vector: Float32, stored: bool) -> None:
        for _ in range(_ATTEMPTS):
            if (recall := self._recall(vector, stored)) is not None:
                self._metrics.recall_samples.labels("measured").inc()
                self._follow(recall)
                return
        self._metrics.recall_samples.labels("disturbed").inc()

    def _recall(self, vector: Float32, stored: bool) -> float | None:
        """Search approximately and exactly; return None if the index changed in between."""
        k = NEIGHBOURS + stored
        nprobe = self._index.nprobe
        found = self._index.search(vector[np.newaxis], k, nprobe=nprobe)
        exact, sequence = self._index.exact_scores(vector, k)
        at = (found.generation, nprobe)
        if found.sequence != sequence or at != (self._index.generation, self._index.nprobe):
            return None
        if at != self._measured_at:
            self._recalls.clear()
            self._measured_at = at
        return share_found(found.scores[:, int(stored) :], exact[np.newaxis, int(stored) :])

    def _follow(self, recall: float) -> None:
        self._recalls.append(recall)
        self._metrics.recall.labels("shadow").set(float(np.mean(self._recalls)))
        if len(self._recalls) < WINDOW:
            return
        generation, nprobe = self._measured_at
        adapted = adapted_nprobe(self._recalls, nprobe, self._index.nlist, self._target)
        if adapted != nprobe and self._index.set_nprobe(adapted, generation=generation):
            self._metrics.nprobe.set(adapted)
            _log.info("nprobe changed from %d to %d", nprobe, adapted)

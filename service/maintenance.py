"""What keeps the index of a collection accurate and compact while the service runs.

`Maintenance` retrains and publishes the index, searches earlier texts for the titles of new
documents, measures the scores of random pairs, and finds near-duplicates among texts that were
stored while that was switched off. `RecallMonitor` repeats a small share of the queries with exact
search.
"""

import logging
import random
from collections import deque
from functools import partial
from queue import Empty, Full, Queue

import numpy as np

from encoder.arrays import Float32
from index.alignment.spaces import REFIT_DRIFT
from index.directory.data_directory import DataDirectory
from index.errors import IndexingError, RetrainingStoppedError
from index.followers import Follower, follow_all
from index.progress import SilentProgress
from index.search.calibrate import LiveScoring
from index.vectors.lists import Drift, adapted_nprobe, drift_reasons
from index.vectors.live_index import LiveIndex
from index.vectors.recall import NEIGHBOURS, share_found
from service.metrics import CollectionMetrics
from service.settings import Settings
from service.threads import Worker

PUBLISH_FROM = 1_000  # changes since the last snapshot, and
PUBLISH_SHARE = 0.1  # this share of the vectors: a restart replays few changes
TITLES_SHARE = 0.2  # of the documents may change before all texts are searched for titles again

_log = logging.getLogger(__name__)


class Maintenance:
    """Maintains the index in rounds, while searches and writes continue.

    Attributes:
        worker: the thread that works.
    """

    def __init__(
        self,
        data: DataDirectory,
        scoring: LiveScoring,
        metrics: CollectionMetrics,
        settings: Settings,
    ) -> None:
        """Prepare to maintain an open data directory."""
        self._data = data
        self._scoring = scoring
        self._metrics = metrics
        self._target = settings.target_recall
        self._seconds = settings.maintenance_seconds
        self._families_counted_at = -1  # number of changes of the store when they were counted
        self._aligned_at = -1  # sequence of the store, when all blocks were aligned
        self._attempt = -1, 0.0  # the last one: when the lists were trained, and their drift
        self.worker = Worker("rounds of maintenance", self.work)
        self._stops = self.worker.stopping.is_set

    def start(self) -> None:
        """Start the rounds, at once where words are not counted, which searches lack."""
        self.worker.start(rest=0.0 if self._data.store.counts_words else self._seconds)

    def work(self) -> float:
        """Run one round of all tasks; a task that fails is logged and tried in a later round.

        Returns:
            The seconds until the next round.
        """
        local = (
            self._keep_words,
            self._keep_titles,
            self._keep_lists,
            self._keep_snapshot,
        )
        for task in (
            self._data.engine.catch_up,  # if it missed a change of the store
            *(partial(self._keep_follower, f) for f in self._data.store.followers),
            self._keep_common_text,
            self._keep_alignment,
            *(() if self._data.store.searched_elsewhere else local),
            self._keep_families,
            self._keep_scoring,
        ):
            if self._stops():
                break
            try:
                task()
            except IndexingError as error:
                _log.error("maintenance of the index: %s", error)
            except Exception:
                _log.exception("maintenance of the index failed")
        return self._seconds

    def _keep_follower(self, follower: Follower) -> None:
        """Apply what a follower has missed, and work off what it has left to the maintenance."""
        follow_all([follower])
        if follower.unfinished:
            _log.info("%s: %d are left", follower.TASK, follower.pending())
            follower.finish(SilentProgress(), self._stops)
            self._families_counted_at = -1

    def _keep_lists(self) -> None:
        index = self._data.index
        drift = index.measure_drift()
        _record_drift(drift, self._data, self._metrics)
        trained, changed = self._attempt
        attempted_at = changed if trained == index.manifest.trained_sequence else 0.0
        reasons = drift_reasons(drift, attempted_at=attempted_at)
        if reasons:
            self._attempt = index.manifest.trained_sequence, drift.changed
            self._retrain(reasons)
            _record_drift(index.measure_drift(), self._data, self._metrics)

    def _retrain(self, reasons: tuple[str, ...]) -> None:
        _log.info("retraining the index: %s", ", ".join(reasons))
        try:
            result = self._data.index.retrain(self._target, self._stops)
        except RetrainingStoppedError:
            _log.info("retraining of the index was cancelled: the service is stopping")
            return
        except IndexingError:
            self._metrics.index_retrainings("failed").inc()
            raise
        self._metrics.recall_at_10("held_out").set(result.recall)
        if not result.swapped:
            self._metrics.index_retrainings("refused").inc()
            _log.warning(
                "the new index generation was rejected: recall@10 %.3f, target %.3f, previous %.3f",
                *(result.recall, self._target, result.old_recall),
            )
            return
        self._metrics.index_retrainings("swapped").inc()
        _log.info(
            "index generation %d: %d lists, nprobe %d, recall@10 %.3f, previous %.3f",
            *(self._data.engine.generation, self._data.index.nlist),
            *(self._data.index.manifest.nprobe, result.recall, result.old_recall),
        )

    def _keep_snapshot(self) -> None:
        index = self._data.index
        changes = index.unpublished()
        if changes >= max(PUBLISH_FROM, PUBLISH_SHARE * len(index)):
            index.publish()
            changes = index.unpublished()
        self._metrics.index_unpublished_changes.set(changes)

    def _keep_words(self) -> None:
        words, number = self._data.store.lexical, len(self._data.store)
        if words.unpublished() >= max(PUBLISH_FROM, PUBLISH_SHARE * number):
            words.publish()

    def _keep_common_text(self) -> None:
        store = self._data.store
        if store.common_text.has_drifted():
            store.refresh_common_text(SilentProgress(), self._stops)

    def _keep_titles(self) -> None:
        store = self._data.store
        if store.lexical.changes_since_title_refresh() > TITLES_SHARE * len(store):
            store.lexical.refresh_titles(SilentProgress(), self._stops)

    def _keep_alignment(self) -> None:
        alignment, sequence = self._data.store.alignment, self._data.store.sequence
        if sequence != self._aligned_at:
            fit = alignment.drift() > REFIT_DRIFT
            alignment.refresh(SilentProgress(), fit=fit, stop=self._stops)
            self._aligned_at = -1 if self._stops() else sequence

    def _keep_scoring(self) -> None:
        """Measure the scores of random pairs, if the collection has changed since."""
        if self._scoring.measure():
            _log.info("measured how random pairs of %d documents score", len(self._data.store))

    def _keep_families(self) -> None:
        store = self._data.store
        if (changes := store.sequence) != self._families_counted_at:  # totals reads a table
            self._metrics.family_documents.set(store.families.totals()[1])
            self._families_counted_at = changes


def record_index_metrics(data: DataDirectory, metrics: CollectionMetrics) -> None:
    """Set the metrics of the engine that are cheap to read."""
    metrics.index_documents.set(data.documents)
    metrics.index_generation.set(data.engine.generation)
    if data.store.searched_elsewhere:
        return
    index = data.index
    metrics.index_lists.set(index.nlist)
    metrics.nprobe.set(index.manifest.nprobe)
    if index.nlist == 1:  # every search compares every vector
        metrics.recall_at_10("shadow").set(1.0)


def _record_drift(drift: Drift, data: DataDirectory, metrics: CollectionMetrics) -> None:
    metrics.index_list_imbalance.set(drift.imbalance)
    metrics.index_empty_lists_ratio.set(drift.empty)
    metrics.index_changed_ratio("added").set(drift.added)
    metrics.index_changed_ratio("removed").set(drift.removed)
    record_index_metrics(data, metrics)


SAMPLE_SHARE = 0.01  # of the searches: an exact one takes as long as a hundred others
QUEUED = 32  # more are dropped: an exact search of many vectors is slow
WINDOW = 50  # searches that are measured before nprobe may change
_ATTEMPTS = 3  # to search while the index does not change


class RecallMonitor:
    """Measures the recall of searches, and adapts nprobe to hold the target.

    Attributes:
        worker: the thread that measures.
    """

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
        self._chosen: Queue[tuple[Float32, bool]] = Queue(QUEUED)
        self._recalls: deque[float] = deque(maxlen=WINDOW)
        self._measured_at = (0, 0)  # generation and nprobe of these recalls
        self.worker = Worker("measurements of recall", self._measure_next)
        self._random = random.Random()  # noqa: S311 - which queries are chosen is no secret

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
            self.worker.woken.set()
        except Full:
            self._metrics.recall_samples("dropped").inc()

    def _measure_next(self) -> float | None:
        """Measure the next query; return that there may be more, or that there is none."""
        try:
            vector, stored = self._chosen.get_nowait()
        except Empty:
            return None
        for _ in range(_ATTEMPTS):
            if (recall := self._recall(vector, stored)) is not None:
                self._metrics.recall_samples("measured").inc()
                self._follow(recall)
                return 0.0
        self._metrics.recall_samples("disturbed").inc()
        return 0.0

    def _recall(self, vector: Float32, stored: bool) -> float | None:
        """Search approximately and exactly; return None if the index changed in between."""
        k = NEIGHBOURS + stored
        nprobe = self._index.manifest.nprobe
        found = self._index.search(vector[np.newaxis], k, nprobe=nprobe)
        exact, sequence = self._index.exact_scores(vector, k)
        at = (found.generation, nprobe)
        now = self._index.manifest
        if found.sequence != sequence or at != (now.generation, now.nprobe):
            return None
        if at != self._measured_at:
            self._recalls.clear()
            self._measured_at = at
        return share_found(found.scores[:, int(stored) :], exact[np.newaxis, int(stored) :])

    def _follow(self, recall: float) -> None:
        self._recalls.append(recall)
        self._metrics.recall_at_10("shadow").set(float(np.mean(self._recalls)))
        if len(self._recalls) < WINDOW:
            return
        generation, nprobe = self._measured_at
        adapted = adapted_nprobe(self._recalls, nprobe, self._index.nlist, self._target)
        if adapted != nprobe and self._index.set_nprobe(adapted, generation=generation):
            self._metrics.nprobe.set(adapted)
            _log.info("nprobe changed from %d to %d", nprobe, adapted)

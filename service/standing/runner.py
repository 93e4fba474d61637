"""The standing queries of a collection, and the thread that compares new documents with them.

The thread runs while there are queries. It follows the vector ids of the store, not the requests
that change it: a restart continues where the last process stopped, also with what `longmatch index`
stored meanwhile.
"""

import logging
import threading
from collections.abc import Callable
from time import monotonic

from index.errors import StorageFullError
from service.errors import describe
from service.metrics import CollectionMetrics
from service.settings import Settings
from service.standing.store import Scan, StandingQuery, StandingStore
from service.standing.webhooks import Webhooks
from service.state.database import State
from service.threads import lower_priority

_RETRY_SECONDS = 5.0
_HELD_SECONDS = 60.0  # between looks at what some queries wait for

_LOG = logging.getLogger(__name__)

ScanSome = Callable[[], bool]


class StandingQueries:
    """Keeps standing queries and compares new documents with them.

    Attributes:
        store: what is looked for, how far, and what was found.
        webhooks: the thread that delivers events.
    """

    def __init__(self, state: State, settings: Settings, metrics: CollectionMetrics) -> None:
        self.store = StandingStore(state, max_queries=settings.max_standing_queries)
        self.webhooks = Webhooks(self.store, settings.webhook_hosts, metrics)
        self._metrics = metrics
        self._shared = state.shared  # another server may have been given the queries
        self._scan: ScanSome | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._behind_since: float | None = None

    @property
    def stopping(self) -> bool:
        """Whether the thread is to stop, and clients to hang up."""
        return self._stopping.is_set()

    @property
    def lag_seconds(self) -> float:
        """Seconds for which new documents have waited to be compared; 0 if none do."""
        since = self._behind_since
        return 0.0 if since is None else monotonic() - since

    def start(self, scan: ScanSome, space: str, last: int) -> None:
        """Compare what was stored since the last comparison, if there are queries.

        Args:
            scan: compares some new documents; returns whether there may be more.
            space: fingerprint of the vectors of the store.
            last: the last vector id that the store gave.
        """
        self._scan = scan
        try:
            if not self.store.follow(space, last):
                _LOG.warning(
                    "the vectors were replaced: standing queries find what is stored later"
                )
        except StorageFullError as error:
            _LOG.error("%s", error)
        self.count()
        if self.store.count()["all"]:
            self.wake()
            self.webhooks.wake()

    def wake(self) -> None:
        """Say that documents may have been stored, or that there is a new query."""
        if self._behind_since is None:
            self._behind_since = monotonic()
        self._woken.set()
        with self._starting:
            if self._thread is None and not self.stopping:
                self._thread = threading.Thread(target=self._work, name="standing", daemon=True)
                self._thread.start()

    def stored(self) -> None:
        """Say that documents were stored; does nothing without standing queries."""
        if self._thread is not None or self._shared:
            self.wake()

    def change(
        self, query_id: str, change: Callable[[StandingQuery], StandingQuery]
    ) -> StandingQuery:
        """Change a query, as `StandingStore.change`; what waited for it begins at once."""
        changed = self.store.change(query_id, change)
        self.wake()
        self.webhooks.wake()
        self.count()
        return changed

    def remove(self, query_id: str) -> None:
        """Remove a query and its events."""
        self.store.remove(query_id)
        self.count()

    def resume(self, query_id: str) -> StandingQuery:
        """Let the webhook of a query be tried again at once."""
        resumed = self.store.resume(query_id)
        self.webhooks.wake()
        self.count()
        return resumed

    def count(self) -> None:
        """Set the metrics that count queries."""
        counted = self.store.count()
        for state, number in counted.items():
            self._metrics.standing_queries.labels(state).set(number)

    def record(self, scans: list[Scan]) -> None:
        """Store what comparisons found, durably, and tell the webhooks."""
        events = self.store.advance(scans)
        if events:
            self._metrics.standing_events.inc(events)
            self.webhooks.wake()

    def stop(self) -> None:
        """Ask the thread to stop, without waiting for it."""
        self._stopping.set()
        self._woken.set()
        self.webhooks.stop()

    def close(self) -> None:
        """Stop, and wait for the threads; closing twice does nothing."""
        self.stop()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()
        self.webhooks.close()

    def _work(self) -> None:
        lower_priority()
        said = ""
        while not self.stopping:
            self._woken.clear()  # what is stored after this wakes it again
            try:
                more = self._scan is not None and self._scan()
                if not more:
                    self.count()
                said = ""
            except Exception as error:
                if said != (said := describe(error)):
                    _LOG.error("standing queries are paused: %s", said)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            if not more and not self._woken.is_set():
                self._behind_since = None
                self._woken.wait(_HELD_SECONDS)

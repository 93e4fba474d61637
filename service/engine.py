"""The parts of a running service; `service.startup` opens and closes them.

An `Engine` is what the whole server shares. A `Collection` is one data directory of it, with the
parts that belong to these documents alone.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import TYPE_CHECKING

from encoder.checkpoint import Checkpoint, VectorSpace
from encoder.encoder import Encoder
from encoder.tokenizer import BlockTokenizer
from index.directory.data_directory import DataDirectory
from index.errors import StoreError
from index.search.calibrate import LiveScoring
from index.sqlite.connections import is_full
from index.store.schema import DEFAULT_COLLECTION
from service.errors import CollectionNotFoundError, NotReadyError, ServiceError
from service.limits import Admission, RateLimiter
from service.maintenance import Maintenance, RecallMonitor, record_index_metrics
from service.map.logic import LiveMap
from service.metrics import CollectionMetrics, Metrics
from service.redis_client import RedisClient
from service.searchers import SearchProcesses
from service.settings import Settings
from service.text.logic import SentFiles
from service.threads import Worker
from service.workers.scheduler import EncodeScheduler

if TYPE_CHECKING:  # these import this module, or SQLAlchemy, which most commands do without
    from service.feedback.store import FeedbackStore
    from service.match.rerank import RerankPool
    from service.standing.logic import StandingQueries
    from service.state import State
    from service.uploads.logic import Jobs

DEFAULT = DEFAULT_COLLECTION
STUCK_SECONDS = 30.0  # a service without a free place for so long is not ready


@dataclass(frozen=True, slots=True)
class Engine:
    """What `open_engine` opened and all collections share; behaviour is in functions that take it.

    Attributes:
        settings: it was opened with.
        encoder: text -> sentence blocks -> vectors; each collection has its own reading share.
        scheduler: the encoder threads and their queue.
        reranking: the reranker with its threads, if one is set.
        admission: the limit on active requests.
        bodies: the limit on bytes of bodies in memory.
        redis: shared with other servers, if one is set.
        rate_limiter: counts the tokens of each client, if a rate is set.
        exports: the limit on exports that wait for their first part.
        files: reads files that clients send.
        exporter: the one thread that reads exports, so that they delay no search.
        readers: the threads that tokenise, compare and read the stores.
        searchers: the threads that search, or hand searches to `search_processes`.
        search_processes: children of the server that search, as many as the settings ask for.
        changer: the one thread that creates and removes collections.
        metrics: where everything is counted.
        collections: what is served.
        opened: closes all of it.
    """

    settings: Settings
    encoder: Encoder
    scheduler: EncodeScheduler
    reranking: "RerankPool | None"
    admission: Admission
    bodies: Admission
    redis: RedisClient | None
    rate_limiter: RateLimiter | None
    exports: Admission
    files: SentFiles
    exporter: ThreadPoolExecutor
    readers: ThreadPoolExecutor
    searchers: ThreadPoolExecutor
    search_processes: SearchProcesses
    changer: ThreadPoolExecutor
    metrics: Metrics
    collections: "Collections"
    opened: ExitStack

    @property
    def default(self) -> "Collection":
        """The collection of the data directory itself."""
        return self.collections.find(DEFAULT)


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """One data directory that is served, and what works for it alone.

    Attributes:
        name: in the paths of the API.
        engine: what it shares with the others.
        checkpoint: of the engine, with the reading share of this data directory.
        tokenizer: text -> sentence blocks, some of which are selected if the share is less than 1.
        space: of its document vectors.
        data: documents, vectors, index.
        scoring: how its scores are combined and calibrated, as last measured.
        state: the tables of `feedback`, `jobs` and `standing`.
        feedback: verdicts on its matches.
        jobs: uploads indexed in the background, and responses stored for Idempotency-Key.
        standing: the queries that new documents are compared with, and their events.
        writer: the one thread that changes store and index, so that the index sees the changes
            in the order of the store.
        metrics: where what belongs to it is counted; the rest is counted for all together.
        recall_monitor: measures recall and adapts nprobe of a local index.
        maintenance: keeps the index accurate and compact.
        map: of its documents.
        workers: the threads of its background work.
        opened: closes all of it.
        number: another one for each that is opened.
    """

    name: str
    engine: Engine
    checkpoint: Checkpoint
    tokenizer: BlockTokenizer
    space: VectorSpace
    data: DataDirectory
    scoring: LiveScoring
    state: "State"
    feedback: "FeedbackStore"
    jobs: "Jobs"
    standing: "StandingQueries"
    writer: ThreadPoolExecutor
    metrics: CollectionMetrics
    recall_monitor: RecallMonitor | None
    maintenance: Maintenance
    map: LiveMap
    workers: Sequence[Worker]
    opened: ExitStack
    number: int = field(default_factory=count(1).__next__)


@dataclass(frozen=True, slots=True)
class UnopenedCollection:
    """A collection that could not be opened, and why."""

    name: str
    reason: str


class Collections:
    """The collections of a service by name. Safe to use from many threads."""

    def __init__(self) -> None:
        self._members: dict[str, Collection | UnopenedCollection] = {}
        self._uses: Counter[Collection] = Counter()
        self._changed = threading.Condition()

    def members(self) -> list[Collection | UnopenedCollection]:
        """Return all of them, the default one first, the others in the order of their names."""
        with self._changed:
            found = list(self._members.values())
        return sorted(found, key=lambda member: (member.name != DEFAULT, member.name))

    def opened(self) -> list[Collection]:
        """Return those that are open."""
        return [member for member in self.members() if isinstance(member, Collection)]

    def unusable(self) -> dict[str, str]:
        """Return why collections cannot be used, by name; those that can be are absent."""
        return {
            member.name: member.reason
            for member in self.members()
            if not isinstance(member, Collection)
        }

    def find(self, name: str) -> Collection:
        """Return an open collection, or raise CollectionNotFoundError or NotReadyError."""
        with self._changed:
            member = self._members.get(name)
        if member is None:
            raise CollectionNotFoundError(name)
        if isinstance(member, UnopenedCollection):
            raise NotReadyError(member.reason)
        return member

    def put(self, member: Collection | UnopenedCollection) -> None:
        """Serve a collection from now on, instead of the one of its name, if there is one."""
        with self._changed:
            self._members[member.name] = member

    @contextmanager
    def use(self, name: str) -> Iterator[Collection]:
        """Find a collection, which is not closed while the block runs."""
        with self._changed:
            collection = self.find(name)
            self._uses[collection] += 1
        try:
            yield collection
        finally:
            with self._changed:
                self._uses[collection] -= 1
                self._changed.notify_all()

    def withdraw(self, name: str, seconds: float) -> Collection | UnopenedCollection:
        """Take a collection out, or raise CollectionNotFoundError; wait for those that use it."""
        with self._changed:
            member = self._members.pop(name, None)
            if member is None:
                raise CollectionNotFoundError(name)
            if isinstance(member, Collection):
                self._changed.wait_for(lambda: not self._uses[member], seconds)
                del self._uses[member]
        return member


def unready_because(engine: Engine) -> str | None:
    """Return what keeps the engine from answering; None if nothing does."""
    if not engine.scheduler.alive:
        return "an encoder thread is not running"
    if engine.admission.full_seconds >= STUCK_SECONDS:
        return f"no active request has ended for {STUCK_SECONDS:.0f} s, and no more are accepted"
    unusable = engine.collections.unusable()
    served = len(engine.collections.members()) > len(unusable)
    return None if served else unusable.get(DEFAULT, "there is no collection")


def record_state(engine: Engine) -> None:
    """Set the metrics that say whether engine and collections can be used, and what these hold.

    It reads tables: not for the event loop.
    """
    engine.metrics.ready.set(unready_because(engine) is None)
    engine.metrics.collection_ready.clear()  # of those that were removed
    unusable = engine.collections.unusable()
    for member in engine.collections.members():
        engine.metrics.collection_ready.labels(member.name).set(member.name not in unusable)
    for member in engine.collections.opened():
        # What was removed meanwhile or cannot be read is left; nothing is closed while it is read.
        with suppress(ServiceError, StoreError), engine.collections.use(member.name) as used:
            _record_collection(used)


def _record_collection(collection: Collection) -> None:
    record_index_metrics(collection.data, collection.metrics)
    collection.metrics.standing_lag_seconds.set(collection.standing.lag_seconds)
    metrics, grades = collection.metrics, collection.feedback.grades()
    metrics.feedback("not_relevant").set(grades.pop(0, 0))
    metrics.feedback("relevant").set(grades.total())
    metrics.jobs_unfinished.set(len(collection.jobs.store.unfinished()))
    for state, number in collection.standing.store.count().items():
        metrics.standing_queries(state).set(number)


def degraded_parts(engine: Engine) -> list[str]:
    """Return what is not well, although requests are answered.

    The engine or Redis is down, a follower is behind, all places of active requests are taken, the
    disk is full or failed, or a collection cannot be used.
    """
    opened = engine.collections.opened()
    parts = {
        "engine": any(collection.data.engine.failure for collection in opened),
        "redis": engine.redis is not None and not engine.redis.available,
        "active_requests": engine.admission.full_seconds > 0,
        "storage": any(
            some.data.store.connections.failure
            or some.state.failure
            or is_full(some.data.store.path)
            for some in opened
        ),
    }
    for follower in (file for some in opened for file in some.data.store.followers):
        parts[follower.path.stem] = parts.get(follower.path.stem, False) or follower.behind
    unusable = [f"collection {name}" for name in engine.collections.unusable()]
    return [*(name for name, fails in parts.items() if fails), *unusable]


@cache
def installed_version() -> str:
    """Return the version of the installed package, or "unknown" in a bare source tree."""
    try:
        return version("longmatch")
    except PackageNotFoundError:
        return "unknown"

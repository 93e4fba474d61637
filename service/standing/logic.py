"""Standing queries: made, changed, compared with new documents in a thread; and their events.

A new document gets the score that POST /match gives it: it is searched for in the same way, among
the new documents alone.

The thread runs while there are queries. It follows the vector ids of the store, not the requests
that change it: a restart continues where the last process stopped, also with what `longmatch index`
stored meanwhile.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar
from zipfile import BadZipFile

import numpy as np

from encoder.arrays import Float32, Int64
from index.engine.port import EncodedQuery
from index.errors import DamagedDocumentError, StorageFullError
from index.id_set import IdSet
from index.search.calibrate import Scoring, calibrate_scores, within
from index.search.rank import search
from index.search.records import AlignmentOptions, Bounds, SearchOptions
from index.search.score import apply_rule
from service.encode import (
    EncodedText,
    RequestText,
    StoredQuery,
    encode_texts,
    find_stored,
    read_queries,
)
from service.engine import Collection
from service.errors import EncodingFailedError, FieldError, InvalidInputError
from service.match.logic import validate_bounds
from service.metrics import CollectionMetrics
from service.settings import Settings
from service.standing.store import Interest, Scan, StandingQuery, StandingStore, Webhook
from service.standing.webhooks import Webhooks
from service.state import State
from service.threads import Worker, run_in

_LOG = logging.getLogger(__name__)

BATCH_DOCUMENTS = 128
BATCH_QUERIES = 64  # whose findings are stored in one transaction
UNREADABLE = "it cannot be read: make it again"
DEFAULT_RATE = 0.001
DEFAULT_PROBABILITY = 0.9
NO_BOUND = (
    "give this, min_probability or min_score: there is no calibration to choose a default from"
)
_ROUNDING = 1e-4  # a score is compared with what it could be at most with this much room


async def create_standing_query(
    collection: Collection,
    interest: Interest,
    text: str | None,
    webhook: Webhook | None,
    *,
    strict: bool = False,
) -> StandingQuery:
    """Make a standing query, durably; every document that is stored after is compared with it.

    Args:
        collection: whose new documents it is compared with.
        interest: what it looks for; without a bound it gets the default.
        text: of the query, which is encoded; None for a stored document.
        webhook: where to tell its events, if anywhere.
        strict: refuse a text that is too long rather than leave a part of it out.

    Raises:
        InvalidInputError: a bound needs a calibration that does not exist, or a text is refused.
    """
    standing, threads = collection.standing, collection.jobs.threads
    interest = _bounded(collection.scoring.present, interest)
    await run_in(threads, standing.store.check_room, len((text or "").encode()))
    encoded: EncodedText | None = None
    if text is None:
        await read_queries(collection, [StoredQuery("#/id", str(interest.document))])
    else:
        given = RequestText("#/text", text, interest.title)
        (encoded,) = await encode_texts(collection, [given], strict=strict)

    def add() -> StandingQuery:
        last = collection.data.store.log.last_vector_id
        fingerprint = collection.space.fingerprint
        return standing.store.add(interest, encoded, webhook, last, fingerprint)

    made = await run_in(threads, add)
    standing.wake()
    return made


async def change_standing_query(
    collection: Collection, query_id: str, change: Callable[[StandingQuery], StandingQuery]
) -> tuple[StandingQuery, StandingQuery]:
    """Change a standing query, durably; without a bound it gets the default.

    What waited for it begins at once. InvalidInputError if a bound has no calibration.

    Returns:
        The query as it was, and as it is.
    """
    standing = collection.standing

    def checked(before: StandingQuery) -> StandingQuery:
        after = change(before)
        if after.bounds == before.bounds:
            return after
        return _bounded(collection.scoring.present, after)

    def work() -> tuple[StandingQuery, StandingQuery]:
        changed = standing.store.change(query_id, checked)
        standing.wake()
        standing.webhooks.wake()
        return changed

    return await run_in(collection.jobs.threads, work)


Looked = TypeVar("Looked", bound=Interest)


def _bounded(scoring: Scoring, given: Looked) -> Looked:
    """Return what is looked for inside the bounds given or, if none is, what calibration allows.

    InvalidInputError if none is given and there is no calibration, or that of one is missing.
    """
    if given.bounds == Bounds():
        if scoring.null_distribution(given.mode) is not None:
            return given.model_copy(update={"max_false_positive_rate": DEFAULT_RATE})
        if scoring.probability_map(given.mode) is not None:
            return given.model_copy(update={"min_probability": DEFAULT_PROBABILITY})
        raise InvalidInputError([FieldError("#/max_false_positive_rate", NO_BOUND)])
    if errors := validate_bounds(scoring, given.mode, given.bounds):
        raise InvalidInputError(errors)
    return given


def scan_new_documents(collection: Collection) -> bool:
    """Compare some new documents with the standing queries; return whether there may be more.

    Called in the thread of `StandingQueries`. Each query has a place of its own in the order of the
    documents: one that cannot be compared now keeps it, and catches up.
    """
    standing, data = collection.standing, collection.data
    if data.store.counts_words:  # a hybrid search would leave the words out
        sleep(1.0)
        return True
    ready = []
    for query in standing.store.listed():
        if not (standing.stopping or query.paused):
            detail = _held_because(collection, query)
            standing.store.hold(query, detail)
            if detail is None:
                ready.append(query)
    more = False
    for place in sorted({query.scanned for query in ready}):
        _, ids = data.store.log.added_after(place, BATCH_DOCUMENTS)
        if not len(ids) or standing.stopping:
            break
        # After what is being stored: then all that follows from these documents is there.
        collection.writer.submit(data.engine.catch_up).result()
        more |= _compare(collection, [query for query in ready if query.scanned == place], ids)
    return more


def _compare(collection: Collection, queries: list[StandingQuery], ids: Int64) -> bool:
    """Compare some documents with some queries; return whether any of these has advanced."""
    advanced = False
    standing = collection.standing
    _, vectors = collection.data.store.compared(ids)
    for start in range(0, len(queries), BATCH_QUERIES):
        scans = []
        for query in queries[start : start + BATCH_QUERIES]:
            if standing.stopping:
                break
            try:
                scan = _find(collection, query, ids, vectors)
            except (DamagedDocumentError, BadZipFile, TypeError, ValueError) as error:
                # It keeps no other one from being compared.
                _LOG.error("standing query %s: %s", query.id, type(error).__name__)
                standing.store.hold(query, UNREADABLE)
                continue
            if scan is not None:
                scans.append(scan)
        if events := standing.store.advance(scans):
            collection.metrics.standing_events.inc(events)
            standing.webhooks.wake()
        advanced |= bool(scans)
    return advanced


def _find(
    collection: Collection, query: StandingQuery, ids: Int64, vectors: Float32
) -> Scan | None:
    """Compare documents of these vectors, as they are compared, with a query.

    None if it or its document cannot be read.
    """
    encoded: EncodedQuery | None
    if query.document is None:
        encoded = collection.standing.store.read_text(query)
    else:
        encoded = find_stored(collection.data, [query.document]).get(query.document)
    if encoded is None:  # it was removed, or its document
        return None
    compared = collection.data.store.alignment.whiten(encoded.vector[np.newaxis])[0]
    if query.mode == "semantic" and not _may_match(collection, query, vectors @ compared):
        return Scan(query, int(ids[-1]), (), query.mode)
    aligns = collection.engine.settings.alignment_budget_ms > 0
    options = SearchOptions(
        top_k=len(ids),
        mode=query.mode,
        bounds=query.bounds,
        where=query.where,
        alignment=AlignmentOptions(len(ids), math.inf) if aligns else None,
    )
    answer = search(
        collection.data,
        encoded,
        options,
        scoring=collection.scoring.present,
        among=IdSet(int(ids[-1]) + 1, ids),
    )
    return Scan(query, int(ids[-1]), answer.hits, answer.scored_as)


def _may_match(collection: Collection, interest: Interest, cosines: Float32) -> bool:
    """Return whether the nearest document would be inside the bounds if it were aligned wholly."""
    nearest, scoring = cosines.max(initial=-1.0, keepdims=True), collection.scoring.present
    _, most = apply_rule(scoring.rule, "semantic", nearest, np.ones_like(nearest))
    most += _ROUNDING
    (worth,) = calibrate_scores(scoring, "semantic", most.tolist())
    return within(interest.bounds, float(most[0]), worth)


def _held_because(collection: Collection, query: StandingQuery) -> str | None:
    """Return why new documents cannot be compared with a query now; None if they can."""
    if query.detail == UNREADABLE:  # for good
        return UNREADABLE
    if errors := validate_bounds(collection.scoring.present, query.mode, query.bounds):
        return errors[0].detail
    if query.document is not None:
        known = collection.data.store.content_hashes([query.document])
        return None if known else "its document was deleted"
    if query.fingerprint != collection.space.fingerprint:
        return _encode_again(collection, query)
    return None


def _encode_again(collection: Collection, query: StandingQuery) -> str | None:
    """Encode the text of a query with the present checkpoint; return why that is not possible."""
    text = collection.standing.store.read_text(query)
    if text is None:
        return None
    given = RequestText("#/text", text.text, query.title)
    try:
        (read,) = asyncio.run(encode_texts(collection, [given], strict=False, background=True))
    except InvalidInputError as error:
        return f"its text cannot be encoded: {error.errors[0].detail}"
    except EncodingFailedError:
        return "its text could not be encoded: it is tried again"
    collection.standing.store.put_text(query, read, collection.space.fingerprint)
    return None


_HELD_SECONDS = 60.0  # between looks at what some queries wait for


class StandingQueries:
    """Keeps standing queries and compares new documents with them.

    Attributes:
        store: what is looked for, how far, and what was found.
        worker: the thread that compares.
        webhooks: they deliver events.
    """

    def __init__(self, state: State, settings: Settings, metrics: CollectionMetrics) -> None:
        self.store = StandingStore(state, max_queries=settings.max_standing_queries)
        self.webhooks = Webhooks(self.store, settings.webhook_hosts, metrics)
        self._shared = state.shared  # another server may have been given the queries
        self._collection: Collection | None = None
        self.worker = Worker("standing queries", self._work)
        self._behind_since: float | None = None

    @property
    def stopping(self) -> bool:
        """Whether the thread is to stop, and clients to hang up."""
        return self.worker.stopping.is_set()

    @property
    def lag_seconds(self) -> float:
        """Seconds for which new documents have waited to be compared; 0 if none do."""
        since = self._behind_since
        return 0.0 if since is None else monotonic() - since

    def start(self, collection: Collection) -> None:
        """Compare what was stored since the last comparison, if there are queries."""
        self._collection = collection
        last = collection.data.store.log.last_vector_id
        try:
            if not self.store.follow(collection.space.fingerprint, last):
                _LOG.warning(
                    "the vectors were replaced: standing queries find what is stored later"
                )
        except StorageFullError as error:
            _LOG.error("%s", error)
        if self.store.count()["all"]:
            self.wake()
            self.webhooks.wake()

    def wake(self) -> None:
        """Say that documents may have been stored, or that there is a new query."""
        if self._behind_since is None:
            self._behind_since = monotonic()
        self.worker.woken.set()
        self.worker.start()

    def stored(self) -> None:
        """Say that documents were stored; does nothing without standing queries."""
        if self.worker.thread is not None or self._shared:
            self.wake()

    def resume(self, query_id: str) -> StandingQuery:
        """Let the webhook of a query be tried again at once."""
        resumed = self.store.resume(query_id)
        self.webhooks.wake()
        return resumed

    def _work(self) -> float:
        if self._collection is not None and scan_new_documents(self._collection):
            return 0.0
        if not self.worker.woken.is_set():
            self._behind_since = None
        return _HELD_SECONDS

"""Every Prometheus metric of the service; no other module defines one."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics import MetricWrapperBase

from service.errors import RejectionReason

Stage = Literal[
    "tokenize", "queue", "encode", "filter", "search", "lexical", "align", "fetch", "rerank",
    "explain", "store",
]  # fmt: skip

LineOutcome = Literal["indexed", "failed"]
RetrainingOutcome = Literal["swapped", "refused", "failed"]
DeliveryOutcome = Literal["delivered", "retried", "failed"]
FeedbackVerdict = Literal["relevant", "not_relevant"]
SampleOutcome = Literal["measured", "dropped", "disturbed"]

# Metrics whose label values are known before anything happens. A counter that begins with its first
# event, at 1, has no increase: an alert would miss that event, and a panel be empty until then.
_COUNTED: Final = {
    "job_documents": get_args(LineOutcome),
    "feedback": get_args(FeedbackVerdict),
    "index_retrainings": get_args(RetrainingOutcome),
    "recall_samples": get_args(SampleOutcome),
    "webhook_deliveries": get_args(DeliveryOutcome),
}

# The buckets that OpenTelemetry recommends for `http.server.request.duration`.
DURATION_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
TOKEN_BUCKETS = tuple(float(2**power) for power in range(4, 21))

M = TypeVar("M", bound=MetricWrapperBase)


class Labelled(Generic[M]):
    """A metric of one collection that has more labels than that."""

    def __init__(self, metric: M, collection: str) -> None:
        self._metric = metric
        self._collection = collection

    def labels(self, *values: str) -> M:
        """Return the metric with these values of its other labels."""
        return self._metric.labels(self._collection, *values)


@dataclass(frozen=True, slots=True)
class CollectionMetrics:
    """The metrics of `Metrics` that each collection has, those of one collection."""

    jobs_unfinished: Gauge
    jobs_ended: Labelled[Counter]
    job_documents: Labelled[Counter]
    index_documents: Gauge
    index_generation: Gauge
    index_lists: Gauge
    index_list_imbalance: Gauge
    index_empty_lists: Gauge
    index_changed: Labelled[Gauge]
    index_unpublished: Gauge
    index_retrainings: Labelled[Counter]
    nprobe: Gauge
    recall: Labelled[Gauge]
    recall_samples: Labelled[Counter]
    store_free: Gauge
    family_documents: Gauge
    standing_events: Counter
    standing_lag: Gauge
    standing_queries: Labelled[Gauge]
    webhook_deliveries: Labelled[Counter]
    feedback: Labelled[Gauge]


class Metrics:
    """The metrics of one engine, on their own registry.

    Those that are in `CollectionMetrics` have the label `collection`. As many collections may be
    open as the settings allow, and those of a removed one are removed.
    """

    def __init__(self) -> None:  # noqa: PLR0915  a list, not logic
        """Create them, with those of the process, the platform and the garbage collector."""
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

        counter = partial(Counter, namespace="longmatch", registry=registry)
        gauge = partial(Gauge, namespace="longmatch", registry=registry)
        histogram = partial(Histogram, namespace="longmatch", registry=registry)
        duration = partial(histogram, buckets=DURATION_BUCKETS)
        self.requests = counter("requests_total", "Requests answered.", ["route", "method", "code"])
        self.request_duration = duration(
            "request_duration_seconds", "Time from request to response.", ["route"]
        )
        self.stage_duration = duration(
            "stage_duration_seconds", "Time of one stage of a request.", ["stage"]
        )
        self.queue_tokens = gauge("queue_tokens", "Tokens admitted and not encoded yet.")
        self.admission_rejected = counter(
            "admission_rejected_total", "Requests rejected because of overload.", ["reason"]
        )
        self.rate_limited = counter(
            "rate_limited_total", "Requests rejected because of the rate limit of their client."
        )
        self.deadline_dropped = counter(
            "deadline_dropped_total", "Requests cancelled because their deadline passed."
        )
        self.document_tokens = histogram(
            "document_tokens", "Tokens of a document.", buckets=TOKEN_BUCKETS
        )
        self.documents_truncated = counter("documents_truncated_total", "Documents not read whole.")
        self.tokens_left_out = counter("tokens_left_out_total", "Tokens that were not read.")
        self.encoded_tokens = counter("encoded_tokens_total", "Tokens encoded.")
        self.encoded_blocks = counter("encoded_blocks_total", "Sentence blocks encoded.")
        self.encoder_rate = gauge(
            "encoder_tokens_per_second", "Measured throughput of the encoder while it is busy."
        )
        self.block_cache_hits = counter(
            "block_cache_hits_total", "Sentence blocks whose vectors were cached."
        )
        self.block_cache_misses = counter(
            "block_cache_misses_total", "Sentence blocks whose vectors were not cached."
        )
        self.redis_up = gauge("redis_up", "1 if Redis is available or none is set, else 0.")
        self.redis_errors = counter("redis_errors_total", "Calls of Redis that failed.")
        self.cancelled = counter(
            "cancelled_total", "Requests whose client disconnected before the response."
        )
        self.slow_clients = counter(
            "slow_clients_total", "Clients disconnected because they read too slowly."
        )
        self.search_processes = gauge("search_processes", "Search processes that are ready.")
        self.search_process_ends = counter(
            "search_process_ends_total", "Search processes that ended and were started again."
        )
        self.search_process_left = counter(
            "search_process_left_total",
            "Searches that threads of the server did, as no search process could.",
        )
        self.reranked_pairs = counter(
            "reranked_pairs_total", "Candidates that the reranker scored."
        )
        self.rerank_out_of_time = counter(
            "rerank_out_of_time_total", "Queries whose candidates could not all be scored in time."
        )
        self.jobs_unfinished = gauge(
            "jobs_unfinished", "Uploads that are waiting or being indexed.", ["collection"]
        )
        self.jobs_ended = counter(
            "jobs_ended_total", "Uploads that ended.", ["collection", "state"]
        )
        self.job_documents = counter(
            "job_documents_total", "Lines of uploads processed.", ["collection", "outcome"]
        )
        self.index_documents = gauge("index_documents", "Documents in the index.", ["collection"])
        self.index_generation = gauge(
            "index_generation", "Generation of the index.", ["collection"]
        )
        self.index_lists = gauge(
            "index_lists", "Inverted lists of the index; 1 is an exhaustive search.", ["collection"]
        )
        self.index_list_imbalance = gauge(
            "index_list_imbalance",
            "Mean search time relative to lists of equal size; 1 is optimal.",
            ["collection"],
        )
        self.index_empty_lists = gauge(
            "index_empty_lists_ratio", "Share of the lists without a vector.", ["collection"]
        )
        self.index_changed = gauge(
            "index_changed_ratio",
            "Vectors added or removed since training, relative to those at training.",
            ["collection", "kind"],
        )
        self.index_unpublished = gauge(
            "index_unpublished_changes",
            "Vectors added or removed since the last snapshot.",
            ["collection"],
        )
        self.index_retrainings = counter(
            "index_retrainings_total",
            "New index generations that were built.",
            ["collection", "outcome"],
        )
        self.nprobe = gauge("nprobe", "Inverted lists that a query visits.", ["collection"])
        self.recall = gauge(
            "recall_at_10",
            "Share of the 10 exact neighbours that a search finds, for real queries (shadow) or "
            "for vectors held out of the last training (held_out).",
            ["collection", "source"],
        )
        self.recall_samples = counter(
            "recall_samples_total",
            "Searches sampled to be repeated exactly.",
            ["collection", "outcome"],
        )
        self.family_documents = gauge(
            "family_documents",
            "Documents that belong to a family of copies and versions.",
            ["collection"],
        )
        self.standing_events = counter(
            "standing_events_total", "New documents that matched a standing query.", ["collection"]
        )
        self.standing_lag = gauge(
            "standing_lag_seconds",
            "Time for which new documents have waited to be compared with the standing queries.",
            ["collection"],
        )
        self.standing_queries = gauge(
            "standing_queries",
            "Standing queries: all, those that wait for something, paused ones, and those "
            "whose webhook failed.",
            ["collection", "state"],
        )
        self.webhook_deliveries = counter(
            "webhook_deliveries_total",
            "Attempts to deliver an event to a webhook.",
            ["collection", "outcome"],
        )
        self.feedback = gauge(
            "feedback", "Verdicts on matches that are kept.", ["collection", "verdict"]
        )
        self.store_free = gauge(
            "store_free_bytes", "Unused bytes in the file of the store.", ["collection"]
        )
        self.ready = gauge("ready", "1 when the service is ready, else 0.")
        self.collection_ready = gauge(
            "collection_ready", "1 when the collection can be used, else 0.", ["collection"]
        )
        self.build_info = gauge(
            "build_info", "What is running.", ["version", "checkpoint", "precision", "provider"]
        )
        for reason in get_args(RejectionReason):
            self.admission_rejected.labels(reason)

    def of(self, collection: str) -> CollectionMetrics:
        """Return the metrics of a collection."""
        metrics: dict[str, Any] = {}
        for field in fields(CollectionMetrics):
            metric = getattr(self, field.name)
            metrics[field.name] = (
                metric.labels(collection)
                if field.type in (Gauge, Counter)
                else Labelled(metric, collection)
            )
        for name, values in _COUNTED.items():
            for value in values:
                metrics[name].labels(value)
        return CollectionMetrics(**metrics)

    def forget(self, collection: str) -> None:
        """Remove the metrics of a collection."""
        for field in fields(CollectionMetrics):
            getattr(self, field.name).remove_by_labels({"collection": collection})

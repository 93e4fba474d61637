"""Every Prometheus metric of the service; no other module defines one."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args

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

JobEnd = Literal["done", "cancelled", "failed"]
LineOutcome = Literal["indexed", "failed"]
RetrainingOutcome = Literal["swapped", "refused", "failed"]
DeliveryOutcome = Literal["delivered", "retried", "failed"]
FeedbackVerdict = Literal["relevant", "not_relevant"]
SampleOutcome = Literal["measured", "dropped", "disturbed"]

# The buckets that OpenTelemetry recommends for `http.server.request.duration`.
DURATION_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
TOKEN_BUCKETS = tuple(float(2**power) for power in range(4, 21))

M = TypeVar("M", bound=MetricWrapperBase)


@dataclass(frozen=True, slots=True)
class About:
    """What a metric counts.

    Attributes:
        text: its description, for Prometheus.
        label: that it has besides `collection`.
        values: of this label, as far as they are known before anything happens. A counter that
            begins with its first event, at 1, has no increase: an alert would miss that event, and
            a panel be empty until then.
    """

    text: str
    label: str | None = None
    values: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """All its labels."""
        return ["collection"] if self.label is None else ["collection", self.label]


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
    """The metrics that each collection has, those of one collection."""

    jobs_unfinished: Annotated[Gauge, About("Uploads that are waiting or being indexed.")]
    jobs_ended: Annotated[
        Labelled[Counter], About("Uploads that ended.", "state", get_args(JobEnd))
    ]
    job_documents: Annotated[
        Labelled[Counter],
        About("Lines of uploads processed.", "outcome", get_args(LineOutcome)),
    ]
    index_documents: Annotated[Gauge, About("Documents in the index.")]
    index_generation: Annotated[Gauge, About("Generation of the index.")]
    index_lists: Annotated[Gauge, About("Inverted lists of the index; 1 is an exhaustive search.")]
    index_list_imbalance: Annotated[
        Gauge, About("Mean search time relative to lists of equal size; 1 is optimal.")
    ]
    index_empty_lists_ratio: Annotated[Gauge, About("Share of the lists without a vector.")]
    index_changed_ratio: Annotated[
        Labelled[Gauge],
        About("Vectors added or removed since training, relative to those at training.", "kind"),
    ]
    index_unpublished_changes: Annotated[
        Gauge, About("Vectors added or removed since the last snapshot.")
    ]
    index_retrainings: Annotated[
        Labelled[Counter],
        About("New index generations that were built.", "outcome", get_args(RetrainingOutcome)),
    ]
    nprobe: Annotated[Gauge, About("Inverted lists that a query visits.")]
    recall_at_10: Annotated[
        Labelled[Gauge],
        About(
            "Share of the 10 exact neighbours that a search finds, for real queries (shadow) or "
            "for vectors held out of the last training (held_out).",
            "source",
        ),
    ]
    recall_samples: Annotated[
        Labelled[Counter],
        About("Searches sampled to be repeated exactly.", "outcome", get_args(SampleOutcome)),
    ]
    store_free_bytes: Annotated[Gauge, About("Unused bytes in the file of the store.")]
    family_documents: Annotated[
        Gauge, About("Documents that belong to a family of copies and versions.")
    ]
    standing_events: Annotated[Counter, About("New documents that matched a standing query.")]
    standing_lag_seconds: Annotated[
        Gauge,
        About("Time for which new documents have waited to be compared with the standing queries."),
    ]
    standing_queries: Annotated[
        Labelled[Gauge],
        About(
            "Standing queries: all, those that wait for something, paused ones, and those "
            "whose webhook failed.",
            "state",
        ),
    ]
    webhook_deliveries: Annotated[
        Labelled[Counter],
        About("Attempts to deliver an event to a webhook.", "outcome", get_args(DeliveryOutcome)),
    ]
    feedback: Annotated[
        Labelled[Gauge],
        About("Verdicts on matches that are kept.", "verdict", get_args(FeedbackVerdict)),
    ]


# Of each metric of a collection its class, and what it counts.
_OF_COLLECTIONS: Final[dict[str, tuple[Any, About]]] = {
    name: (form.__args__[0], form.__metadata__[0])
    for name, form in CollectionMetrics.__annotations__.items()
}


class Metrics:
    """The metrics of one engine, on their own registry.

    Those of `CollectionMetrics` are here under the same names, with the label `collection`. As many
    collections may be open as the settings allow, and those of a removed one are removed.
    """

    def __init__(self) -> None:
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
        self.ready = gauge("ready", "1 when the service is ready, else 0.")
        self.collection_ready = gauge(
            "collection_ready", "1 when the collection can be used, else 0.", ["collection"]
        )
        self.build_info = gauge(
            "build_info", "What is running.", ["version", "checkpoint", "precision", "provider"]
        )
        for name, (kind, about) in _OF_COLLECTIONS.items():
            make = counter if Counter in (kind, *get_args(kind)) else gauge
            vars(self)[name] = make(name, about.text, about.labels)
        for reason in get_args(RejectionReason):
            self.admission_rejected.labels(reason)

    def of(self, collection: str) -> CollectionMetrics:
        """Return the metrics of a collection."""
        metrics: dict[str, Any] = {}
        for name, (_, about) in _OF_COLLECTIONS.items():
            metric = vars(self)[name]
            if about.label is None:
                metrics[name] = metric.labels(collection)
                continue
            metrics[name] = Labelled(metric, collection)
            for value in about.values:
                metrics[name].labels(value)
        return CollectionMetrics(**metrics)

    def forget(self, collection: str) -> None:
        """Remove the metrics of a collection."""
        for name in _OF_COLLECTIONS:
            vars(self)[name].remove_by_labels({"collection": collection})

"""Every Prometheus metric of the service; no other module defines one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from service.errors import RejectionReason

Stage = Literal[
    "tokenize", "queue", "encode", "filter", "search", "lexical", "align", "fetch", "rerank",
    "explain", "store",
]  # fmt: skip

JobEnd = Literal["done", "cancelled", "failed"]
RetrainingOutcome = Literal["swapped", "refused", "failed"]
DeliveryOutcome = Literal["delivered", "retried", "failed"]
SampleOutcome = Literal["measured", "dropped", "disturbed"]

# The buckets that OpenTelemetry recommends for `http.server.request.duration`.
DURATION_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
TOKEN_BUCKETS = tuple(float(2**power) for power in range(4, 21))


Gauges = Callable[[str], Gauge]  # by the value of a label
Counters = Callable[[str], Counter]


@dataclass(frozen=True, slots=True)
class CollectionMetrics:
    """The metrics of one collection, each with what it counts.

    One that is called with the value of a label names that, and the values that are known before
    anything happens. A counter that begins with its first event, at 1, has no increase: an alert
    would miss that event, and a panel be empty until then.
    """

    jobs_unfinished: Annotated[Gauge, "Uploads that are waiting or being indexed."]
    jobs_ended: Annotated[Counters, "Uploads that ended.", "state", get_args(JobEnd)]
    job_documents: Annotated[
        Counters, "Lines of uploads processed.", "outcome", ("indexed", "failed")
    ]
    index_documents: Annotated[Gauge, "Documents in the index."]
    index_generation: Annotated[Gauge, "Generation of the index."]
    index_lists: Annotated[Gauge, "Inverted lists of the index; 1 is an exhaustive search."]
    index_list_imbalance: Annotated[
        Gauge, "Mean search time relative to lists of equal size; 1 is optimal."
    ]
    index_empty_lists_ratio: Annotated[Gauge, "Share of the lists without a vector."]
    index_changed_ratio: Annotated[
        Gauges, "Vectors added or removed since training, relative to those at training.", "kind"
    ]
    index_unpublished_changes: Annotated[Gauge, "Vectors added or removed since the last snapshot."]
    index_retrainings: Annotated[
        Counters, "New index generations that were built.", "outcome", get_args(RetrainingOutcome)
    ]
    nprobe: Annotated[Gauge, "Inverted lists that a query visits."]
    recall_at_10: Annotated[
        Gauges,
        "Share of the 10 exact neighbours that a search finds, for real queries (shadow) or "
        "for vectors held out of the last training (held_out).",
        "source",
    ]
    recall_samples: Annotated[
        Counters, "Searches sampled to be repeated exactly.", "outcome", get_args(SampleOutcome)
    ]
    family_documents: Annotated[Gauge, "Documents that belong to a family of copies and versions."]
    standing_events: Annotated[Counter, "New documents that matched a standing query."]
    standing_lag_seconds: Annotated[
        Gauge, "Time for which new documents have waited to be compared with the standing queries."
    ]
    standing_queries: Annotated[
        Gauges,
        "Standing queries: all, those that wait for something, paused ones, and those "
        "whose webhook failed.",
        "state",
    ]
    webhook_deliveries: Annotated[
        Counters, "Attempts to deliver an event to a webhook.", "outcome", get_args(DeliveryOutcome)
    ]
    feedback: Annotated[
        Gauges, "Verdicts on matches that are kept.", "verdict", ("relevant", "not_relevant")
    ]


# Of each metric of a collection its class, what it counts, and perhaps a label with its values.
_OF_COLLECTIONS: Final[dict[str, tuple[Any, ...]]] = {
    name: (form.__args__[0], *form.__metadata__)
    for name, form in CollectionMetrics.__annotations__.items()
}


class Metrics:
    """The metrics of one engine, on their own registry, each with what it counts, and its labels.

    Those of `CollectionMetrics` are here under the same names, with the label `collection`. As many
    collections may be open as the settings allow, and those of a removed one are removed.
    """

    requests: Annotated[Counter, "Requests answered.", ["route", "method", "code"]]
    queue_tokens: Annotated[Gauge, "Tokens admitted and not encoded yet."]
    admission_rejected: Annotated[Counter, "Requests rejected because of overload.", ["reason"]]
    rate_limited: Annotated[Counter, "Requests rejected because of the rate limit of their client."]
    deadline_dropped: Annotated[Counter, "Requests cancelled because their deadline passed."]
    documents_truncated: Annotated[Counter, "Documents not read whole."]
    tokens_left_out: Annotated[Counter, "Tokens that were not read."]
    encoded_tokens: Annotated[Counter, "Tokens encoded."]
    encoded_blocks: Annotated[Counter, "Sentence blocks encoded."]
    encoder_tokens_per_second: Annotated[
        Gauge, "Measured throughput of the encoder while it is busy."
    ]
    block_cache_hits: Annotated[Counter, "Sentence blocks whose vectors were cached."]
    block_cache_misses: Annotated[Counter, "Sentence blocks whose vectors were not cached."]
    redis_up: Annotated[Gauge, "1 if Redis is available or none is set, else 0."]
    redis_errors: Annotated[Counter, "Calls of Redis that failed."]
    cancelled: Annotated[Counter, "Requests whose client disconnected before the response."]
    slow_clients: Annotated[Counter, "Clients disconnected because they read too slowly."]
    search_processes: Annotated[Gauge, "Search processes that are ready."]
    search_process_ends: Annotated[Counter, "Search processes that ended and were started again."]
    search_process_left: Annotated[
        Counter, "Searches that threads of the server did, as no search process could."
    ]
    reranked_pairs: Annotated[Counter, "Candidates that the reranker scored."]
    rerank_out_of_time: Annotated[
        Counter, "Queries whose candidates could not all be scored in time."
    ]
    ready: Annotated[Gauge, "1 when the service is ready, else 0."]
    collection_ready: Annotated[Gauge, "1 when the collection can be used, else 0.", ["collection"]]
    build_info: Annotated[
        Gauge, "What is running.", ["version", "checkpoint", "precision", "provider"]
    ]

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
        self.request_duration = duration(
            "request_duration_seconds", "Time from request to response.", ["route"]
        )
        self.stage_duration = duration(
            "stage_duration_seconds", "Time of one stage of a request.", ["stage"]
        )
        self.document_tokens = histogram(
            "document_tokens", "Tokens of a document.", buckets=TOKEN_BUCKETS
        )
        for name, form in Metrics.__annotations__.items():
            make = counter if form.__args__[0] is Counter else gauge
            vars(self)[name] = make(name, *form.__metadata__)
        for name, (kind, text, *label) in _OF_COLLECTIONS.items():
            make = counter if Counter in (kind, *get_args(kind)) else gauge
            vars(self)[name] = make(name, text, ["collection", *label[:1]])
        for reason in get_args(RejectionReason):
            self.admission_rejected.labels(reason)

    def of(self, collection: str) -> CollectionMetrics:
        """Return the metrics of a collection."""
        metrics: dict[str, Any] = {}
        for name, (_, _, *label) in _OF_COLLECTIONS.items():
            labelled = partial(vars(self)[name].labels, collection)
            metrics[name] = labelled if label else labelled()
            for value in label[1] if len(label) > 1 else ():
                labelled(value)
        return CollectionMetrics(**metrics)

    def forget(self, collection: str) -> None:
        """Remove the metrics of a collection."""
        for name in _OF_COLLECTIONS:
            vars(self)[name].remove_by_labels({"collection": collection})

"""The metrics: named as dashboards expect them, and separate for each engine."""

from service.metrics import create_metrics

EXPECTED = {
    "longmatch_requests": ("counter", {"route", "method", "code"}),
    "longmatch_request_duration_seconds": ("histogram", {"route"}),
    "longmatch_stage_duration_seconds": ("histogram", {"stage"}),
    "longmatch_queue_tokens": ("gauge", set()),
    "longmatch_admission_rejected": ("counter", {"reason"}),
    "longmatch_rate_limited": ("counter", set()),
    "longmatch_deadline_dropped": ("counter", set()),
    "longmatch_encoder_tokens_per_second": ("gauge", set()),
    "longmatch_block_cache_hits": ("counter", set()),
    "longmatch_block_cache_misses": ("counter", set()),
    "longmatch_redis_up": ("gauge", set()),
    "longmatch_redis_errors": ("counter", set()),
    "longmatch_document_tokens": ("histogram", set()),
    "longmatch_documents_truncated": ("counter", set()),
    "longmatch_tokens_left_out": ("counter", set()),
    "longmatch_encoded_tokens": ("counter", set()),
    "longmatch_encoded_blocks": ("counter", set()),
    "longmatch_cancelled": ("counter", set()),
    "longmatch_slow_clients": ("counter", set()),
    "longmatch_search_processes": ("gauge", set()),
    "longmatch_search_process_ends": ("counter", set()),
    "longmatch_search_process_left": ("counter", set()),
    "longmatch_reranked_pairs": ("counter", set()),
    "longmatch_rerank_out_of_time": ("counter", set()),
    "longmatch_jobs_unfinished": ("gauge", {"collection"}),
    "longmatch_jobs_ended": ("counter", {"collection", "state"}),
    "longmatch_job_documents": ("counter", {"collection", "outcome"}),
    "longmatch_index_documents": ("gauge", {"collection"}),
    "longmatch_index_generation": ("gauge", {"collection"}),
    "longmatch_index_lists": ("gauge", {"collection"}),
    "longmatch_index_list_imbalance": ("gauge", {"collection"}),
    "longmatch_index_empty_lists_ratio": ("gauge", {"collection"}),
    "longmatch_index_changed_ratio": ("gauge", {"collection", "kind"}),
    "longmatch_index_unpublished_changes": ("gauge", {"collection"}),
    "longmatch_index_retrainings": ("counter", {"collection", "outcome"}),
    "longmatch_nprobe": ("gauge", {"collection"}),
    "longmatch_recall_at_10": ("gauge", {"collection", "source"}),
    "longmatch_recall_samples": ("counter", {"collection", "outcome"}),
    "longmatch_store_free_bytes": ("gauge", {"collection"}),
    "longmatch_feedback": ("gauge", {"collection", "verdict"}),
    "longmatch_family_documents": ("gauge", {"collection"}),
    "longmatch_standing_events": ("counter", {"collection"}),
    "longmatch_standing_lag_seconds": ("gauge", {"collection"}),
    "longmatch_standing_queries": ("gauge", {"collection", "state"}),
    "longmatch_webhook_deliveries": ("counter", {"collection", "outcome"}),
    "longmatch_damaged_documents": ("gauge", {"collection"}),
    "longmatch_ready": ("gauge", set()),
    "longmatch_collection_ready": ("gauge", {"collection"}),
    "longmatch_build_info": ("gauge", {"version", "checkpoint", "precision", "provider"}),
}


def test_metrics_have_the_names_and_labels_of_dashboards() -> None:
    metrics = create_metrics()
    metrics.requests.labels("/match", "POST", "200").inc()
    metrics.request_duration.labels("/match").observe(0.1)
    metrics.stage_duration.labels("encode").observe(0.1)
    metrics.admission_rejected.labels("queue_tokens").inc()
    metrics.collection_ready.labels("papers").set(1)
    own = metrics.of("papers")
    own.index_changed.labels("added").set(0.1)
    own.index_retrainings.labels("swapped").inc()
    own.recall.labels("shadow").set(0.97)
    own.recall_samples.labels("measured").inc()
    own.jobs_ended.labels("done").inc()
    own.job_documents.labels("indexed").inc()
    own.standing_queries.labels("all").set(1)
    metrics.build_info.labels("1", "tiny", "fp32", "cpu").set(1)
    found = {
        family.name: (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in metrics.registry.collect()
        if family.name.startswith("longmatch_")
    }
    assert found == EXPECTED


def test_what_has_not_happened_yet_is_counted_as_0() -> None:
    metrics = create_metrics()
    metrics.of("papers")
    value = metrics.registry.get_sample_value
    for name, label, values in (
        ("index_retrainings", "outcome", ("swapped", "refused", "failed")),
        ("recall_samples", "outcome", ("measured", "dropped", "disturbed")),
        ("job_documents", "outcome", ("indexed", "failed")),
    ):
        for each in values:
            labels = {label: each, "collection": "papers"}
            assert value(f"longmatch_{name}_total", labels) == 0, (name, each)
    for reason in ("queue_tokens", "active_requests", "jobs"):
        assert value("longmatch_admission_rejected_total", {"reason": reason}) == 0


def test_the_process_is_measured_too() -> None:
    names = {family.name for family in create_metrics().registry.collect()}
    assert {"process_resident_memory_bytes", "python_info"} <= names


def test_the_metrics_of_a_removed_collection_are_removed() -> None:
    metrics = create_metrics()
    for name in ("papers", "laws"):
        own = metrics.of(name)
        own.index_documents.set(3)
        own.recall.labels("shadow").set(0.97)
    metrics.forget("papers")
    named = {
        sample.labels["collection"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if "collection" in sample.labels
    }
    assert named == {"laws"}

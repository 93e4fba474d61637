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
    "longmatch_reranked_pairs": ("counter", set()),
    "longmatch_rerank_out_of_time": ("counter", set()),
    "longmatch_jobs_unfinished": ("gauge", set()),
    "longmatch_jobs_ended": ("counter", {"state"}),
    "longmatch_job_documents": ("counter", {"outcome"}),
    "longmatch_index_documents": ("gauge", set()),
    "longmatch_index_generation": ("gauge", set()),
    "longmatch_index_lists": ("gauge", set()),
    "longmatch_index_list_imbalance": ("gauge", set()),
    "longmatch_index_empty_lists_ratio": ("gauge", set()),
    "longmatch_index_changed_ratio": ("gauge", {"kind"}),
    "longmatch_index_unpublished_changes": ("gauge", set()),
    "longmatch_index_retrainings": ("counter", {"outcome"}),
    "longmatch_nprobe": ("gauge", set()),
    "longmatch_recall_at_10": ("gauge", {"source"}),
    "longmatch_recall_samples": ("counter", {"outcome"}),
    "longmatch_store_free_bytes": ("gauge", set()),
    "longmatch_damaged_documents": ("gauge", set()),
    "longmatch_family_documents": ("gauge", set()),
    "longmatch_ready": ("gauge", set()),
    "longmatch_build_info": ("gauge", {"version", "checkpoint", "precision", "provider"}),
}


def test_every_metric_has_the_name_the_kind_and_the_labels_that_dashboards_use() -> None:
    metrics = create_metrics()
    metrics.requests.labels("/match", "POST", "200").inc()
    metrics.request_duration.labels("/match").observe(0.1)
    metrics.stage_duration.labels("encode").observe(0.1)
    metrics.admission_rejected.labels("queue_tokens").inc()
    metrics.index_changed.labels("added").set(0.1)
    metrics.index_retrainings.labels("swapped").inc()
    metrics.recall.labels("shadow").set(0.97)
    metrics.recall_samples.labels("measured").inc()
    metrics.jobs_ended.labels("done").inc()
    metrics.job_documents.labels("indexed").inc()
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


def test_document_lengths_are_counted_in_powers_of_two() -> None:
    metrics = create_metrics()
    metrics.document_tokens.observe(2048)
    value = metrics.registry.get_sample_value
    assert value("longmatch_document_tokens_bucket", {"le": "1024.0"}) == 0
    assert value("longmatch_document_tokens_bucket", {"le": "2048.0"}) == 1


def test_two_engines_of_one_process_count_apart() -> None:
    one, other = create_metrics(), create_metrics()
    one.cancelled.inc()
    assert other.registry.get_sample_value("longmatch_cancelled_total") == 0


def test_the_process_is_measured_too() -> None:
    names = {family.name for family in create_metrics().registry.collect()}
    assert {"process_resident_memory_bytes", "python_info"} <= names

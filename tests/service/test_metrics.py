"""The metrics: what has not happened is 0, and a removed collection leaves none."""

from service.metrics import Metrics


def test_what_has_not_happened_yet_is_counted_as_0() -> None:
    metrics = Metrics()
    assert "process_resident_memory_bytes" in {family.name for family in metrics.registry.collect()}
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


def test_the_metrics_of_a_removed_collection_are_removed() -> None:
    metrics = Metrics()
    for name in ("papers", "laws"):
        own = metrics.of(name)
        own.index_documents.set(3)
        own.recall_at_10("shadow").set(0.97)
    metrics.forget("papers")
    named = {
        sample.labels["collection"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if "collection" in sample.labels
    }
    assert named == {"laws"}

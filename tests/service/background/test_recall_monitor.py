"""Real queries repeated with exact search, and an nprobe that adapts."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from encoder.blocks import Receipt
from index.document import Document
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument
from index.vectors.lists import ONE_LIST_BELOW, nprobe_steps
from index.vectors.live_index import LiveIndex
from service.documents.logic import index_documents
from service.encode import RequestText
from service.engine import Engine
from service.maintenance import QUEUED, RecallMonitor
from service.match.logic import match
from service.match.schemas import MatchRequest
from service.metrics import Metrics
from tests.kit.index_fixtures import DIMENSION, unit_vectors
from tests.kit.waiting import wait_until


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveIndex]:
    """Random vectors in 128 lists, of which the default visits 22."""
    folder: Path = tmp_path_factory.mktemp("live")
    store = DocumentStore(folder / "store.sqlite3", fingerprint="a" * 64, dimension=DIMENSION)
    receipt = Receipt(1, 1, 1, 0, 1)
    vectors = unit_vectors(ONE_LIST_BELOW, seed=1)
    store.put(
        [EncodedDocument(Document(f"d{n}", f"d{n}"), row, receipt) for n, row in enumerate(vectors)]
    )
    yield LiveIndex(store, folder / "vectors.faiss", precision="fp32")
    store.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return (
        metrics.registry.get_sample_value(f"longmatch_{name}", {"collection": "default", **labels})
        or 0.0
    )


def watching(
    live: LiveIndex, metrics: Metrics, target_recall: float = 0.95, share: float = 1.0
) -> RecallMonitor:
    return RecallMonitor(live, metrics.of("default"), target_recall, share)


def offer_until(watch: RecallMonitor, reached: Callable[[], bool]) -> None:
    seeds = count(100)

    def offer() -> bool:
        for query in unit_vectors(10, seed=next(seeds)):
            watch.offer(query, stored=False)
        return reached()

    wait_until(offer)


def test_nprobe_rises_to_hold_a_target_and_falls_again(live: LiveIndex, metrics: Metrics) -> None:
    least, *_, most = nprobe_steps(128)
    live.set_nprobe(least, generation=live.manifest.generation)
    strict = watching(live, metrics, target_recall=1.0)
    strict.worker.start()
    offer_until(strict, lambda: live.manifest.nprobe > least + 10)
    strict.worker.close()
    assert least < live.manifest.nprobe <= most
    assert value(metrics, "nprobe") == live.manifest.nprobe
    assert 0.5 < value(metrics, "recall_at_10", source="shadow") <= 1.0
    high = live.manifest.nprobe
    lax = watching(live, metrics, target_recall=0.5)
    lax.worker.start()
    offer_until(lax, lambda: live.manifest.nprobe < high)
    lax.worker.close()
    assert least <= live.manifest.nprobe < high
    assert value(metrics, "recall_samples_total", outcome="measured") >= 100


def test_the_gauge_is_the_recall_against_brute_force(live: LiveIndex, metrics: Metrics) -> None:
    live.set_nprobe(nprobe_steps(128)[0], generation=live.manifest.generation)
    stored = unit_vectors(ONE_LIST_BELOW, seed=1)
    watch = watching(live, metrics)
    queries = unit_vectors(20, seed=5)
    recalls = [watch._recall(query, False) for query in queries]
    exact = np.argsort(-(queries @ stored.T), axis=1)[:, :10] + 1
    found = live.search(queries, 10).ids
    hits = [len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    assert recalls == [pytest.approx(number / 10) for number in hits]
    assert min(hits) < 10
    # A stored document finds itself; that is not counted.
    itself = watch._recall(stored[7], True)
    others = np.argsort(-(stored[7] @ stored.T))[1:11] + 1
    nearest = live.search(stored[7:8], 11).ids[0]
    assert itself == pytest.approx(len(set(others.tolist()) & set(nearest.tolist())) / 10)


def test_the_share_is_chosen_and_what_is_over_the_limit_dropped(
    live: LiveIndex, metrics: Metrics
) -> None:
    query = unit_vectors(1, seed=2)[0]
    all_of_them = watching(live, metrics)  # its thread does not run: as busy as can be
    for _ in range(QUEUED + 5):
        all_of_them.offer(query, stored=False)
    assert value(metrics, "recall_samples_total", outcome="dropped") == 5
    all_of_them.worker.close()
    none = watching(live, metrics, share=0.0)
    for _ in range(1_000):
        none.offer(query, stored=False)
    assert none._chosen.qsize() == 0
    some = watching(live, metrics, share=0.01)
    for _ in range(1_000):
        some.offer(query, stored=False)
    assert 0 < some._chosen.qsize() < QUEUED


def test_a_bad_query_does_not_end_it(
    live: LiveIndex, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    watch = watching(live, metrics)
    watch.worker.start()
    watch.offer(np.full(DIMENSION, np.nan, dtype=np.float32), stored=False)
    offer_until(watch, lambda: value(metrics, "recall_samples_total", outcome="measured") > 0)
    watch.worker.close()
    assert "measurements of recall are paused" in caplog.text
    assert set(threading.enumerate()) <= before


def test_matches_by_vector_are_offered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[bool] = []
    monkeypatch.setattr(
        RecallMonitor, "offer", lambda self, vector, *, stored: offered.append(stored)
    )
    asyncio.run(
        index_documents(engine.default, [Document("a", "Ants live."), Document("b", "Bees live.")])
    )
    for mode, times in [("semantic", 1), ("hybrid", 2), ("lexical", 2)]:
        wanted = MatchRequest.model_construct(top_k=1, mode=mode)
        [answer] = asyncio.run(match(engine.default, [RequestText("#/text", "Ants live.")], wanted))
        assert offered == [False] * times
        assert answer.answer.generation == engine.default.data.index.manifest.generation
        assert answer.answer.sequence == engine.default.data.store.sequence == 1

"""The pool of the reranker: fair, within its time, and reporting failures."""

import asyncio
import threading
import time

import pytest

from encoder.reranker.score_fusion import ScoreFusion
from encoder.reranker.sentence_ranking import SentenceGraphText, split_for_ranking
from service.errors import EncodingFailedError, ShuttingDownError
from service.match.rerank import RerankPool
from service.metrics import Metrics

ENOUGH = 120.0


class SlowReranker:
    """Takes its time for each pair; a text is scored by its length."""

    name = "slow"
    rule = ScoreFusion()

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.scored: list[str] = []
        self._lock = threading.Lock()

    def read(self, text: str) -> SentenceGraphText:
        return split_for_ranking(text)

    def score(self, first: SentenceGraphText, second: SentenceGraphText) -> float:
        time.sleep(self.seconds)
        if second.text == "broken":
            raise ValueError("broken")
        with self._lock:
            self.scored.append(first.text)
        return float(len(second.text))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value_of(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"longmatch_{name}")


def test_all_are_read_in_time_and_answered_in_their_order(metrics: Metrics) -> None:
    pool = RerankPool(SlowReranker(), 3, metrics)
    texts = ["a" * (number % 7 + 1) for number in range(40)]
    logits, seconds = asyncio.run(pool.score("query", texts, ENOUGH))
    assert asyncio.run(pool.score("query", [], ENOUGH))[0] == []
    pool.close()
    assert logits == [len(text) for text in texts]
    assert seconds > 0
    assert value_of(metrics, "reranked_pairs_total") == 40
    assert value_of(metrics, "rerank_out_of_time_total") == 0


def test_when_time_is_up_the_rest_is_left(metrics: Metrics) -> None:
    reranker = SlowReranker(seconds=0.1)
    pool = RerankPool(reranker, 2, metrics)
    logits, seconds = asyncio.run(pool.score("query", ["text"] * 1000, 1.5))
    pool.close()
    assert 0 < len(logits) < 100
    assert seconds < 30
    assert len(reranker.scored) <= len(logits) + 2  # what ran already ends unheard
    assert value_of(metrics, "rerank_out_of_time_total") == 1


def test_requests_share_the_pool(metrics: Metrics) -> None:
    reranker = SlowReranker(seconds=0.01)
    pool = RerankPool(reranker, 2, metrics)

    async def both() -> None:
        await asyncio.gather(
            pool.score("many", ["text"] * 60, ENOUGH), pool.score("few", ["text"] * 6, ENOUGH)
        )

    asyncio.run(both())
    pool.close()
    last = max(number for number, query in enumerate(reranker.scored) if query == "few")
    assert last < 40  # in a queue it would have come behind all sixty


def test_a_failure_is_raised_and_ends_the_work(metrics: Metrics) -> None:
    reranker = SlowReranker(seconds=0.01)
    pool = RerankPool(reranker, 2, metrics)
    with pytest.raises(EncodingFailedError):
        asyncio.run(pool.score("query", ["broken", *["text"] * 200], ENOUGH))
    pool.close()
    assert len(reranker.scored) < 100
    with pytest.raises(ShuttingDownError):
        asyncio.run(pool.score("query", ["text"], ENOUGH))


def test_a_caller_that_leaves_stops_the_work(metrics: Metrics) -> None:
    reranker = SlowReranker(seconds=0.02)
    pool = RerankPool(reranker, 2, metrics)

    async def leave() -> None:
        task = asyncio.ensure_future(pool.score("query", ["text"] * 500, ENOUGH))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(leave())
    pool.close()
    assert len(reranker.scored) < 200

"""Reranking: the first candidates of a query are scored together with it, within a time limit.

Every pair is a call of its own on a small pool. A request has at most one call for each thread in
the pool at a time, so that a request with many candidates does not hold up another.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from encoder.onnx_encoder import usable_cores
from encoder.reranker.onnx_reranker import OnnxReranker, open_reranker
from encoder.reranker.sentence_ranking import SentenceGraphText
from service.errors import EncodingFailedError
from service.metrics import Metrics
from service.settings import Settings
from service.telemetry import observe_stage
from service.threads import lower_priority, run_in

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RerankReceipt:
    """How much of a reranking was done.

    Attributes:
        reranked: whether the matches are in the order of the reranker; otherwise time ran out, and
            they are in the order of retrieval.
        candidates: how many were to be scored.
        rescored: how many were scored.
        reranker: its name.
        calibration: version of the fusion and calibration of its scores; None if there is none.
    """

    reranked: bool
    candidates: int
    rescored: int
    reranker: str
    calibration: str | None


class RerankPool:
    """A reranker with its threads."""

    def __init__(self, reranker: OnnxReranker, threads: int, metrics: Metrics) -> None:
        self.reranker = reranker
        self._threads = threads
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(threads, "rerank", lower_priority)

    def close(self) -> None:
        """Stop; calls that have not started are never made."""
        self._pool.shutdown(cancel_futures=True)

    async def score(
        self, query: str, texts: Sequence[str], seconds: float
    ) -> tuple[list[float], float]:
        """Score texts together with a query until the time is up.

        Returns:
            The logits of those that were scored, in their order: of all, if there was time; and the
            seconds that it took.
        """
        logits: dict[int, float] = {}
        todo = iter(enumerate(texts))

        async def work(first: SentenceGraphText) -> None:
            for number, text in todo:
                logits[number] = await self._run(self._score_one, first, text)

        started = time.perf_counter()
        try:
            async with asyncio.timeout(seconds):
                first = await self._run(self.reranker.read, query)
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._threads):
                        group.create_task(work(first))
        except TimeoutError:
            pass
        except ExceptionGroup as errors:  # a call failed, and the others were cancelled
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        taken = time.perf_counter() - started
        observe_stage(self._metrics, "rerank", taken)
        self._metrics.reranked_pairs.inc(len(logits))
        if len(logits) < len(texts):
            self._metrics.rerank_out_of_time.inc()
        return [logits[number] for number in sorted(logits)], taken

    def _score_one(self, first: SentenceGraphText, text: str) -> float:
        return self.reranker.score(first, self.reranker.read(text))

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                _LOG.error("the reranker failed", exc_info=error)
                raise EncodingFailedError from error

        return await run_in(self._pool, run)


def open_rerank_pool(settings: Settings, metrics: Metrics) -> RerankPool | None:
    """Open the reranker of the settings; return None if there is none."""
    if settings.reranker is None:
        return None
    reranker = open_reranker(settings.reranker)
    reranker.warm_up()
    return RerankPool(reranker, settings.threads or usable_cores(), metrics)

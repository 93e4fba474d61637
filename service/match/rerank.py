"""Reranking: the first documents of a search are read together with the query."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ParamSpec, TypeVar

import numpy as np

from encoder.calibration import FittedMap, match_probabilities
from encoder.onnx_encoder import usable_cores
from encoder.reranker.onnx_reranker import OnnxReranker, open_reranker
from encoder.reranker.sentence_ranking import SentenceGraphText
from index.directory.data_directory import DataDirectory
from index.document import text_below
from index.search.calibrate import CalibratedScore, within
from index.search.records import NO_BOUNDS, Hit, Mode, SearchOptions
from service.encode import EncodedText
from service.engine import Collection
from service.errors import EncodingFailedError, FieldError
from service.match.retrieve import MAX_TOP_K, Matches, RerankedBody, retrieve
from service.match.schemas import RerankBody
from service.metrics import Metrics
from service.settings import Settings
from service.telemetry import observe_stage
from service.threads import lower_priority, run_in

_LOG = logging.getLogger(__name__)


P = ParamSpec("P")
T = TypeVar("T")


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


async def retrieve_and_rerank(
    collection: Collection,
    queries: Sequence[EncodedText],
    search: SearchOptions,
    options: RerankBody | None,
) -> list[Matches]:
    """Find the documents that match each query, the first candidates ranked by a reranker.

    If the time is up before all candidates of a query were read, its matches keep the order of the
    search, and the receipt says so. Documents beyond the candidates follow in their order.

    Args:
        collection: what to search, and with what.
        queries: to find matches for.
        search: how many documents to return, and which; its bounds apply to the final scores.
        options: how much to read, as `validate_rerank` lets through; None for no reranking.
    """
    pool = collection.engine.reranking
    if options is None or pool is None:
        return await retrieve(collection, queries, search)
    top_k = max(search.top_k, min(options.candidates, MAX_TOP_K))
    found = await retrieve(collection, queries, replace(search, top_k=top_k, bounds=NO_BOUNDS))
    reranked = [await _rerank(collection, pool, matches, options) for matches in found]
    return [_with_hits(matches, _cut(matches.answer.hits, search)) for matches in reranked]


def _with_hits(matches: Matches, hits: tuple[Hit, ...]) -> Matches:
    return replace(matches, answer=replace(matches.answer, hits=hits))


async def _rerank(
    collection: Collection,
    pool: RerankPool,
    found: Matches,
    options: RerankBody,
) -> Matches:
    """Read the first matches of a query and reorder them, if there is time to read all."""
    hits, mode = found.answer.hits, found.answer.scored_as
    first = hits[: options.candidates]
    texts = await run_in(collection.engine.readers, _texts, collection.data, first)
    first = tuple(hit for hit in first if hit.id in texts)  # others were deleted since
    (query,) = found.texts
    text = text_below(query.title, query.text)
    logits, seconds = await pool.score(text, [texts[hit.id] for hit in first], options.seconds)
    fitted = probability_map_of(collection, mode)
    if complete := len(logits) == len(first):
        ordered = _order(pool, mode, fitted, first, logits)
        hits = (*ordered, *hits[options.candidates :])
    receipt = RerankedBody(
        reranked=complete,
        candidates=len(first),
        rescored=len(logits),
        reranker=pool.reranker.checkpoint.name,
        calibration=None if fitted is None else pool.reranker.rule.version,
    )
    taken = {**found.seconds, "rerank": seconds}
    return replace(_with_hits(found, hits), seconds=taken, rerank=receipt)


def _order(
    pool: RerankPool,
    mode: Mode,
    fitted: FittedMap | None,
    hits: Sequence[Hit],
    logits: Sequence[float],
) -> list[Hit]:
    """Return hits with the scores of the reranker, best first; ties keep their order."""
    weights = pool.reranker.rule.weights_of(mode)
    scores = [weights.score(hit.score, logit) for hit, logit in zip(hits, logits, strict=True)]
    probabilities: list[float | None] = [None] * len(scores)
    if fitted is not None:
        probabilities = match_probabilities(fitted.map, np.array(scores)).tolist()
    reranked = [
        replace(
            hit,
            score=score,
            probability=probability,
            false_positive_rate=None,
            relevant=None,
            first_stage_score=hit.score,
        )
        for hit, score, probability in zip(hits, scores, probabilities, strict=True)
    ]
    return sorted(reranked, key=lambda hit: -hit.score)


def probability_map_of(collection: Collection, mode: Mode) -> FittedMap | None:
    """Return the map of reranked scores of a mode; None if none was fitted for the encoder."""
    if collection.engine.reranking is None:
        return None
    rule = collection.engine.reranking.reranker.rule
    if rule.encoder != collection.checkpoint.fingerprint:
        return None
    return rule.maps.get(mode)


def validate_rerank(collection: Collection, search: SearchOptions) -> list[FieldError]:
    """Return the fields of a request that reranking cannot satisfy."""
    bounds = search.bounds
    if collection.engine.reranking is None:
        return [FieldError("#/rerank", "this service was started without a reranker")]
    errors = []
    if bounds.max_false_positive_rate is not None:
        detail = "is not known of scores that were reranked"
        errors.append(FieldError("#/max_false_positive_rate", detail))
    if bounds.min_probability is not None and probability_map_of(collection, search.mode) is None:
        detail = f"the reranker has no calibration of {search.mode} scores"
        errors.append(FieldError("#/min_probability", detail))
    return errors


def _texts(data: DataDirectory, hits: Sequence[Hit]) -> Mapping[str, str]:
    """Return the texts of documents by their ids, without those deleted since."""
    found = data.store.find([hit.id for hit in hits])
    return {name: stored.document.titled_text for name, stored in found.items()}


def _cut(hits: Sequence[Hit], search: SearchOptions) -> tuple[Hit, ...]:
    """Return the first `top_k` hits that are inside the bounds."""
    kept = [
        hit
        for hit in hits
        if within(
            search.bounds, hit.score, CalibratedScore(hit.probability, hit.false_positive_rate)
        )
    ]
    return tuple(kept[: search.top_k])

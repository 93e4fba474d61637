"""Matching in two stages: the first candidates of a search are reranked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.calibration import FittedMap, match_probabilities
from index.directory.data_directory import DataDirectory
from index.document import text_below
from index.search.search import Mode
from service.engine import Engine
from service.errors import FieldError
from service.matching.calibration import NO_BOUNDS, CalibratedScore, score_kind, within
from service.matching.collapse import find_distinct
from service.matching.retrieve import Match, Matches, Search, Sought
from service.threads import run_in
from service.workers.rerank_pool import RerankPool, RerankReceipt


@dataclass(frozen=True, slots=True)
class Rerank:
    """What a request asks of the second stage.

    Attributes:
        candidates: how many of the first stage are read again.
        seconds: that it may take for one query; as long as the settings allow when not given.
    """

    candidates: int
    seconds: float | None = None


async def find_reranked(
    engine: Engine, sought: Sequence[Sought], search: Search, rerank: Rerank
) -> list[Matches]:
    """Find the documents that match each query, the first candidates by reading both together.

    Where time is up before all candidates of a query were read, its matches are those of the first
    stage, and their receipt says so. Candidates beyond those that are read follow in their order.

    Args:
        engine: with a reranker.
        sought: the queries.
        search: what to give; its bounds hold for the scores that are given.
        rerank: how much to read.

    Raises:
        ValueError: there is no reranker; `refused_reranking` tells before.
        ServiceError: the reranker failed.
    """
    if engine.reranking is None:
        raise ValueError("there is no reranker")
    wanted = max(search.top_k, min(rerank.candidates, engine.settings.max_top_k))
    found = await find_distinct(engine, sought, replace(search, top_k=wanted, bounds=NO_BOUNDS))
    reranked = [
        await _rerank(engine, engine.reranking, query, matches, rerank)
        for query, matches in zip(sought, found, strict=True)
    ]
    return [replace(one, matches=_cut(one.matches, search)) for one in reranked]


async def _rerank(
    engine: Engine, pool: RerankPool, query: Sought, found: Matches, rerank: Rerank
) -> Matches:
    """Read the first matches of a query and put them in their new order, if there is time."""
    first = found.matches[: rerank.candidates]
    texts = await run_in(engine.readers, _texts, engine.data, first)
    first = tuple(one for one in first if one.id in texts)  # others were deleted since
    seconds = rerank.seconds or engine.settings.rerank_seconds
    reading = text_below(query.title, query.text)
    judged = await pool.judge(reading, [texts[one.id] for one in first], seconds)
    scores = _Scores(engine, pool, found.scored_as)
    ordered = found.matches
    if complete := len(judged.logits) == len(first):
        ordered = (*scores.order(first, judged.logits), *ordered[rerank.candidates :])
    receipt = RerankReceipt(
        reranked=complete,
        candidates=len(first),
        rescored=len(judged.logits),
        reranker=pool.reranker.name,
        calibration=scores.version,
    )
    taken = {**found.seconds, "rerank": judged.seconds}
    return replace(found, matches=ordered, seconds=taken, rerank=receipt)


class _Scores:
    """Makes scores and probabilities of logits, by the rule of a reranker."""

    def __init__(self, engine: Engine, pool: RerankPool, mode: Mode) -> None:
        rule = pool.reranker.rule
        self._mixture = rule.weights_of(mode)
        self._map = probability_map_of(engine, mode)
        self.version = None if self._map is None else rule.version

    def order(self, matches: Sequence[Match], logits: Sequence[float]) -> list[Match]:
        """Return matches with the scores of the reranker, best first."""
        scores = [
            self._mixture.score(one.score, logit)
            for one, logit in zip(matches, logits, strict=True)
        ]
        probabilities: list[float | None] = [None] * len(scores)
        if self._map is not None:
            probabilities = match_probabilities(self._map.map, np.array(scores)).tolist()
        reranked = [
            replace(
                one,
                score=score,
                probability=probability,
                false_positive_rate=None,
                first_stage_score=one.score,
            )
            for one, score, probability in zip(matches, scores, probabilities, strict=True)
        ]
        return sorted(reranked, key=lambda one: -one.score)  # stable: ties as of the first stage


def probability_map_of(engine: Engine, mode: Mode) -> FittedMap | None:
    """Return the map of reranked scores of a mode; None where none was fitted for the encoder."""
    if engine.reranking is None:
        return None
    rule = engine.reranking.reranker.rule
    if rule.encoder != engine.checkpoint.fingerprint:
        return None
    return rule.maps.get(score_kind(mode, adapted=engine.judge.adapted))


def refused_reranking(engine: Engine, search: Search, rerank: Rerank) -> list[FieldError]:
    """Return what cannot be done of a search with reranking, besides what no search can do."""
    settings, bounds = engine.settings, search.bounds
    if engine.reranking is None:
        return [FieldError("#/rerank", "this service was started without a reranker")]
    refused = []
    if not 1 <= rerank.candidates <= (limit := settings.max_rerank_candidates):
        refused.append(FieldError("#/rerank/candidates", f"must be from 1 to {limit}", limit))
    if rerank.seconds is not None and not 0 < rerank.seconds <= settings.rerank_seconds:
        limit = round(1000 * settings.rerank_seconds)
        refused.append(FieldError("#/rerank/budget_ms", f"must be above 0, up to {limit}", limit))
    if bounds.max_false_positive_rate is not None:
        refused.append(
            FieldError("#/max_false_positive_rate", "is not known of scores that were reranked")
        )
    if bounds.min_probability is not None and probability_map_of(engine, search.mode) is None:
        detail = f"the reranker has no calibration of {search.mode} scores"
        refused.append(FieldError("#/min_probability", detail))
    return refused


def _texts(data: DataDirectory, matches: Sequence[Match]) -> Mapping[str, str]:
    """Return what is read of candidates by their ids; of those deleted since, nothing."""
    found = data.store.find([one.id for one in matches])
    return {name: one.document.titled_text for name, one in found.items()}


def _cut(matches: Sequence[Match], search: Search) -> tuple[Match, ...]:
    """Leave out what is outside of the bounds, and then what is too much."""
    least = search.bounds.min_score
    kept = [
        one
        for one in matches
        if (least is None or one.score >= least)
        and within(search.bounds, CalibratedScore(one.probability, one.false_positive_rate))
    ]
    return tuple(kept[: search.top_k])

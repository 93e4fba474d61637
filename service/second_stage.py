"""Matching in two stages: the first candidates of a search are reranked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.calibration import FittedMap, match_probabilities
from index.data_directory import DataDirectory
from index.modes import DEFAULT_MODE, Mode
from service.calibration import NO_BOUNDS, Bounds, Worth, refused_bounds, score_kind, within
from service.engine import Engine
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.matching import Match, Matches, Query, StoredQuery, match
from service.reranking import RerankPool, RerankReceipt
from service.threads import run_in


@dataclass(frozen=True, slots=True)
class Rerank:
    """What a request asks of the second stage.

    Attributes:
        candidates: how many of the first stage are read again.
        seconds: that it may take for one query; as long as the settings allow when not given.
    """

    candidates: int
    seconds: float | None = None


async def match_reranked(
    engine: Engine,
    queries: Sequence[Query],
    rerank: Rerank,
    *,
    top_k: int,
    mode: Mode = DEFAULT_MODE,
    bounds: Bounds = NO_BOUNDS,
    strict: bool = False,
) -> list[Matches]:
    """Find the documents that match each query, the first candidates by reading both together.

    Where time is up before all candidates of a query were read, its matches are those of the first
    stage, and their receipt says so. Candidates beyond those that are read follow in their order.

    Args:
        engine: with a reranker.
        queries: as of `match`.
        rerank: how much to read.
        top_k: as of `match`, and so on; bounds hold for the scores that are given.

    Raises:
        InvalidInputError: there is no reranker, or as of `match`.
        ServiceError: the other errors of `match`, or the reranker failed.
    """
    pool, refused = engine.reranking, _refused(engine, rerank, mode, bounds)
    if pool is None or refused:
        raise InvalidInputError(refused)
    wanted = max(top_k, min(rerank.candidates, engine.settings.max_top_k))
    found = await match(engine, queries, top_k=wanted, mode=mode, strict=strict)
    seconds = rerank.seconds or engine.settings.rerank_seconds
    scores = _Scores(engine, pool, mode)
    answers = []
    for query, matches in zip(queries, found, strict=True):
        first = matches.matches[: rerank.candidates]
        text, texts = await run_in(engine.readers, _texts, engine.data, query, first)
        first = tuple(one for one in first if one.id in texts)  # others were deleted since
        judged = await pool.judge(text, [texts[one.id] for one in first], seconds)
        ordered = matches.matches
        if complete := len(judged.logits) == len(first):
            ordered = (*scores.order(first, judged.logits), *ordered[rerank.candidates :])
        answers.append(
            replace(
                matches,
                matches=tuple(one for one in ordered if _is_within(bounds, one))[:top_k],
                seconds={**matches.seconds, "rerank": judged.seconds},
                rerank=RerankReceipt(
                    reranked=complete,
                    candidates=len(first),
                    rescored=len(judged.logits),
                    reranker=pool.reranker.name,
                    calibration=scores.version,
                ),
            )
        )
    return answers


class _Scores:
    """Makes scores and probabilities of logits, by the rule of a reranker."""

    def __init__(self, engine: Engine, pool: RerankPool, mode: Mode) -> None:
        rule = pool.reranker.rule
        self._mixture = rule.mixture(mode)
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


def _refused(engine: Engine, rerank: Rerank, mode: Mode, bounds: Bounds) -> list[FieldError]:
    settings = engine.settings
    if engine.reranking is None:
        return [FieldError("#/rerank", "this service was started without a reranker")]
    refused = refused_bounds(engine.judge, mode, bounds)
    if not 1 <= rerank.candidates <= (limit := settings.max_rerank_candidates):
        refused.append(FieldError("#/rerank/candidates", f"must be from 1 to {limit}", limit))
    if rerank.seconds is not None and not 0 < rerank.seconds <= settings.rerank_seconds:
        limit = round(1000 * settings.rerank_seconds)
        refused.append(FieldError("#/rerank/budget_ms", f"must be above 0, up to {limit}", limit))
    if bounds.max_false_positive_rate is not None:
        refused.append(
            FieldError("#/max_false_positive_rate", "is not known of scores that were reranked")
        )
    if bounds.min_probability is not None and probability_map_of(engine, mode) is None:
        refused.append(
            FieldError("#/min_probability", f"the reranker has no calibration of {mode} scores")
        )
    return refused


def _texts(
    data: DataDirectory, query: Query, matches: Sequence[Match]
) -> tuple[str, Mapping[str, str]]:
    """Return the text of the query, and those of its candidates by their ids."""
    names = [one.id for one in matches]
    stored = [query.document_id] if isinstance(query, StoredQuery) else []
    found = {name: one.document.text for name, one in data.store.find([*names, *stored]).items()}
    if not isinstance(query, StoredQuery):
        return query.text, found
    if query.document_id not in found:
        raise DocumentNotFoundError(query.document_id, query.pointer)
    return found[query.document_id], found


def _is_within(bounds: Bounds, one: Match) -> bool:
    if bounds.min_score is not None and one.score < bounds.min_score:
        return False
    return within(bounds, Worth(one.probability, one.false_positive_rate))

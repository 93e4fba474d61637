"""Engines in turns: each answers a part of the queries in each round."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.common import percentiles, ratios
from benchmarks.speed.peers.engine import Ask
from evaluation.metrics import ndcg_at_10

Judgements = Mapping[str, Mapping[str, int]]
ROUNDS = 6
CLOSE = 0.002  # of nDCG@10, within which the cheaper setting is chosen


@dataclass(frozen=True, slots=True)
class Asked:
    """A row of the table, asked in one way.

    Attributes:
        row: its name.
        by: "text" or "id".
        base: the row of ours that its times are divided by.
        ask: what answers.
    """

    row: str
    by: str
    base: str
    ask: Ask


def in_turns(
    asked: Sequence[Asked], queries: Sequence[str], qrels: Judgements
) -> dict[tuple[str, str], dict[str, Any]]:
    """Let all answer the same queries in rounds, after all were asked once, untimed.

    By id goes before by text, for all engines: the words of a document that was asked for just
    before are in the caches of the processor.

    Returns:
        By row and "text" or "id": seconds, their ratio to those of ours, and nDCG@10.
    """
    rounds = min(ROUNDS, len(queries))
    parts = [[str(one) for one in some] for some in np.array_split(list(queries), rounds)]
    seconds: dict[tuple[str, str], list[list[float]]] = {(one.row, one.by): [] for one in asked}
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in asked:
        found[one.row, one.by] = dict(zip(queries, one.ask(queries)[1], strict=True))
    for some in parts:
        for one in sorted(asked, key=lambda one: one.by):
            seconds[one.row, one.by].append(one.ask(some)[0])
    medians = {key: [float(np.median(one)) for one in timed] for key, timed in seconds.items()}
    return {
        (one.row, one.by): {
            "seconds": percentiles([t for own in seconds[one.row, one.by] for t in own]),
            "times_ours": asdict(ratios(medians[one.row, one.by], medians[one.base, one.by])),
            "ndcg": mean_ndcg(found[one.row, one.by], qrels),
        }
        for one in asked
    }


def choose(
    ways: Mapping[str, Ask], candidates: Sequence[str], queries: Sequence[str], qrels: Judgements
) -> tuple[str, dict[str, float]]:
    """Choose a setting by its nDCG@10; of settings that are as good, the first.

    Args:
        ways: to ask, by setting.
        candidates: settings, the cheapest first.
        queries: to choose by, which are not those of the table.
        qrels: judgements.

    Returns:
        The setting, and nDCG@10 of each if there was a choice.
    """
    if len(candidates) == 1:
        return candidates[0], {}
    ndcg = {
        one: mean_ndcg(dict(zip(queries, ways[one](queries)[1], strict=True)), qrels)
        for one in candidates
    }
    best = max(ndcg.values())
    return next(one for one in candidates if ndcg[one] >= best - CLOSE), ndcg


def mean_ndcg(found: Mapping[str, Sequence[str]], qrels: Judgements) -> float:
    """Return the mean nDCG@10 of what was found, best first, for each query."""
    scores = {
        query: {name: float(-rank) for rank, name in enumerate(ids)} for query, ids in found.items()
    }
    return float(np.mean(ndcg_at_10(scores, {query: qrels[query] for query in found})))

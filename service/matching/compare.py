"""How two texts match, and why a match is one: comparisons from vectors that are there already."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from encoder.comparison.compare import compare_texts, document_score
from encoder.comparison.result import Comparison
from encoder.comparison.text import ComparableText
from service.engine import Engine
from service.matching.calibration import calibrate_scores
from service.matching.queries import (
    Query,
    Source,
    find_sources,
    open_source,
    read_sources,
    with_block_vectors,
)
from service.metrics import Stage
from service.threads import run_in


@dataclass(frozen=True, slots=True)
class Explaining:
    """Explain the first `matches` matches of each query, by at most `passages` passages each."""

    matches: int = 10
    passages: int = 20


@dataclass(frozen=True, slots=True)
class Explained:
    """A comparison and the two texts that its offsets point into.

    Attributes:
        comparison: of the two, perhaps without its smaller passages.
        passages_left_out: how many.
        left: one text.
        right: the other.
    """

    comparison: Comparison
    passages_left_out: int
    left: Source
    right: Source


@dataclass(frozen=True, slots=True)
class Compared:
    """The answer to one comparison; time of each stage in seconds."""

    explained: Explained
    seconds: Mapping[Stage, float]


async def compare(
    engine: Engine, left: Query, right: Query, *, passages: int, strict: bool = False
) -> Compared:
    """Compare two texts, given or stored.

    Raises:
        InvalidInputError: a text is refused; names the field.
        DocumentNotFoundError: a stored document is not there.
        ServiceError: the other errors of `encode_texts`.
    """
    started = time.perf_counter()
    sources = await with_block_vectors(
        engine, await read_sources(engine, [left, right], strict=strict)
    )
    encoded = time.perf_counter()
    (explained,) = await run_in(engine.readers, _explain, engine, sources, passages)
    ended = time.perf_counter()
    return Compared(explained, {"encode": encoded - started, "explain": ended - encoded})


async def explain(
    engine: Engine, query: Source, document_ids: Sequence[str], explaining: Explaining
) -> dict[str, Explained]:
    """Compare a query with its first matches; those that are gone by now are absent.

    Nothing is encoded but documents that were stored without block vectors.

    Raises:
        ServiceError: the errors of `encode_texts`, for such documents.
    """
    first = document_ids[: explaining.matches]
    found = await run_in(engine.readers, find_sources, engine.data, first)
    sources = await with_block_vectors(engine, [query, *found.values()])
    explained = await run_in(engine.readers, _explain, engine, sources, explaining.passages)
    return {str(one.right.id): one for one in explained}


def _explain(engine: Engine, sources: Sequence[Source], passages: int) -> list[Explained]:
    """Compare the first source with each of the others."""
    left, *others = sources
    language = engine.checkpoint.language
    ours = open_source(language, left)
    explained = []
    for other in others:
        started = time.perf_counter()
        comparison = compare_read(engine, ours, open_source(language, other))
        engine.metrics.stage_duration.labels("explain").observe(time.perf_counter() - started)
        explained.append(_shortened(comparison, passages, left, other))
    return explained


def compare_read(engine: Engine, left: ComparableText, right: ComparableText) -> Comparison:
    """Compare two texts that were read, with the probability that the calibration gives."""
    (worth,) = calibrate_scores(engine.judge, "semantic", [document_score(left, right)])
    return compare_texts(left, right, probability=worth.probability)


def _shortened(comparison: Comparison, limit: int, left: Source, right: Source) -> Explained:
    """Keep the largest passages, in the order of the left text."""
    passages = comparison.passages
    largest = sorted(passages, key=lambda one: one.left.start - one.left.end)[:limit]
    kept = tuple(sorted(largest, key=lambda one: one.left))
    return Explained(replace(comparison, passages=kept), len(passages) - len(kept), left, right)

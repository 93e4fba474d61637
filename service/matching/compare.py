"""How two texts match, and why a match is one: comparisons of stored or encoded block vectors."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from encoder.comparison.compare import compare_texts, document_score
from encoder.comparison.result import Comparison
from encoder.comparison.text import ComparableText
from index.search.alignment import score_pair
from index.search.calibrator import ScoreCalibrator, calibrate_scores
from index.search.fusion import LinearFusion
from service.encode import EncodedText
from service.engine import Collection
from service.matching.queries import (
    Query,
    add_blocks,
    find_stored,
    read_queries,
    to_comparable,
)
from service.metrics import Stage
from service.telemetry import observe_stage
from service.threads import run_in


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Explain the first `matches` matches of each query.

    By at most `passages` passages each, and as many pairs of aligned blocks.
    """

    matches: int = 10
    passages: int = 20


@dataclass(frozen=True, slots=True)
class Explanation:
    """A comparison and the two texts that its offsets refer to.

    Attributes:
        comparison: of the two texts, without its smaller passages, and the pairs of blocks, aligned
            or attended, with smaller shares, if there are too many.
        passages_left_out: number of passages that are left out.
        left: one text.
        right: the other.
    """

    comparison: Comparison
    passages_left_out: int
    left: EncodedText
    right: EncodedText


def match_probability(
    calibrator: ScoreCalibrator, rule: LinearFusion, left: ComparableText, right: ComparableText
) -> float | None:
    """Return the probability of the semantic score of two texts; None without a calibration."""
    score = score_pair(rule, document_score(left, right), left.aligned, right.aligned)
    (calibrated,) = calibrate_scores(calibrator, "semantic", [score])
    return calibrated.probability


@dataclass(frozen=True, slots=True)
class Compared:
    """The answer to one comparison; time of each stage in seconds."""

    explanation: Explanation
    seconds: Mapping[Stage, float]


async def compare(
    collection: Collection, left: Query, right: Query, *, passages: int, strict: bool = False
) -> Compared:
    """Compare two texts of the request or stored documents."""
    started = time.perf_counter()
    texts = await add_blocks(
        collection, await read_queries(collection, [left, right], strict=strict)
    )
    encoded = time.perf_counter()
    (explanation,) = await run_in(collection.engine.readers, _explain, collection, texts, passages)
    ended = time.perf_counter()
    return Compared(explanation, {"encode": encoded - started, "explain": ended - encoded})


async def explain(
    collection: Collection, query: EncodedText, document_ids: Sequence[str], options: ExplainOptions
) -> dict[str, Explanation]:
    """Compare a query with its first matches; those deleted since, or damaged, are absent.

    Only documents that were stored without block vectors are encoded, or whose are damaged.

    Returns:
        Explanations by document id.
    """
    first = document_ids[: options.matches]
    readers = collection.engine.readers
    found = await run_in(readers, find_stored, collection.data, first, skip_damaged=True)
    texts = await add_blocks(collection, [query, *found.values()])
    explanations = await run_in(readers, _explain, collection, texts, options.passages)
    return dict(zip(found, explanations, strict=True))


def _explain(
    collection: Collection, texts: Sequence[EncodedText], passages: int
) -> list[Explanation]:
    """Compare the first text with each of the others."""
    left, *others = texts
    language = collection.checkpoint.language
    encoder = collection.engine.encoder
    reader = encoder if encoder.reads_sections else None
    alignable = collection.data.store.alignment.read([text.vector_id for text in texts])
    ours = to_comparable(language, left, alignable, reader)
    explanations = []
    for other in others:
        started = time.perf_counter()
        theirs = to_comparable(language, other, alignable, reader)
        probability = match_probability(collection.calibrator, collection.fusion, ours, theirs)
        comparison = compare_texts(ours, theirs, probability=probability, reader=reader)
        observe_stage(collection.engine.metrics, "explain", time.perf_counter() - started)
        explanations.append(_shortened(comparison, passages, left, other))
    return explanations


def _shortened(
    comparison: Comparison, limit: int, left: EncodedText, right: EncodedText
) -> Explanation:
    """Keep the largest passages, in the order of the left text, and the best pairs of blocks."""
    passages = comparison.passages
    largest = sorted(passages, key=lambda passage: passage.left.start - passage.left.end)[:limit]
    kept = tuple(sorted(largest, key=lambda passage: passage.left))
    aligned = comparison.block_alignment
    if aligned is not None:
        aligned = replace(aligned, pairs=aligned.pairs[:limit])
    attended = comparison.attended_blocks
    shortened = replace(
        comparison,
        passages=kept,
        block_alignment=aligned,
        attended_blocks=None if attended is None else attended[:limit],
    )
    return Explanation(shortened, len(passages) - len(kept), left, right)

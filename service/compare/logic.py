"""How two texts match, and why a match is one: comparisons of stored or encoded block vectors."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.alignment.scoring import align
from encoder.comparison.compare import compare_texts
from encoder.comparison.result import Comparison
from encoder.comparison.sections import SectionReader
from encoder.comparison.text import ComparableText
from index.search.align import score_pairs
from index.search.calibrate import Scoring
from index.search.records import Mode
from index.store.document_store import DocumentStore
from index.vectors.vector_index import NO_VECTOR
from service.encode import EncodedText, Query, add_blocks, find_stored, read_queries, to_comparable
from service.engine import Collection
from service.metrics import Stage
from service.telemetry import observe_stage
from service.threads import run_in


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


def compare_prepared(
    scoring: Scoring,
    left: ComparableText,
    right: ComparableText,
    lexical: tuple[Mode, float | None],
    reader: SectionReader | None,
    *,
    differences: bool = False,
) -> Comparison:
    """Compare two texts, with the scores that a search for the left one gives the right one.

    Args:
        scoring: how scores are combined and calibrated.
        left: one text.
        right: the other.
        lexical: the mode whose scores they get, and the lexical score, None if it is not known.
        reader: of sections; None where the model has no vectors of them.
        differences: whether to find what each text has that the other lacks.
    """
    mode, words = lexical
    alignment = None
    if left.aligned is not None and right.aligned is not None:
        alignment = align(left.aligned, [right.aligned])
    (pair,) = score_pairs(
        scoring,
        mode,
        left.vector[np.newaxis] @ right.vector,
        alignment,
        None if words is None else np.array([words], dtype=np.float32),
    )
    return compare_texts(left, right, pair, reader=reader, differences=differences)


def lexical_scores(
    store: DocumentStore, left: EncodedText, others: Sequence[EncodedText]
) -> list[tuple[Mode, float | None]]:
    """Return the mode that a search for a text scores each of the others in, and the lexical score.

    It is the semantic one for a text without any indexed word, and while the words are not ready.
    """
    if store.counts_words:
        return [("semantic", None)] * len(others)
    words = store.words
    query = (
        words.read(left.text, title=left.title)
        if left.vector_id == NO_VECTOR
        else words.read_stored(left.vector_id)
    )
    mode: Mode = "hybrid" if len(query) else "semantic"
    ids = np.array([other.vector_id for other in others], dtype=np.int64)
    scores = words.score(query, ids).tolist()
    return [
        (mode, words.compare(_compared(left), _compared(other)))
        if other.vector_id == NO_VECTOR
        else (mode, score)
        for other, score in zip(others, scores, strict=True)
    ]


def _compared(text: EncodedText) -> int | tuple[str, str]:
    return (text.text, text.title) if text.vector_id == NO_VECTOR else text.vector_id


async def compare(
    collection: Collection,
    left: Query,
    right: Query,
    *,
    passages: int,
    differences: bool = False,
    strict: bool = False,
) -> tuple[Explanation, Mapping[Stage, float]]:
    """Compare two texts of the request or stored documents; return the seconds of stages, too."""
    started = time.perf_counter()
    texts = await add_blocks(
        collection, await read_queries(collection, [left, right], strict=strict)
    )
    encoded = time.perf_counter()
    (explanation,) = await run_in(
        collection.engine.readers, _explain, collection, texts, passages, differences=differences
    )
    ended = time.perf_counter()
    return explanation, {"encode": encoded - started, "explain": ended - encoded}


async def explain(
    collection: Collection, query: EncodedText, document_ids: Sequence[str], passages: int
) -> dict[str, Explanation]:
    """Compare a query with matches, by so many passages each; those deleted since are absent.

    Only documents that were stored without block vectors are encoded.

    Returns:
        Explanations by document id.
    """
    readers = collection.engine.readers
    found = await run_in(readers, find_stored, collection.data, document_ids)
    texts = await add_blocks(collection, [query, *found.values()])
    explanations = await run_in(readers, _explain, collection, texts, passages)
    return dict(zip(found, explanations, strict=True))


def _explain(
    collection: Collection,
    texts: Sequence[EncodedText],
    passages: int,
    *,
    differences: bool = False,
) -> list[Explanation]:
    """Compare the first text with each of the others."""
    left, *others = texts
    language = collection.checkpoint.language
    reader = collection.engine.encoder.section_reader
    scoring, store = collection.scoring.present, collection.data.store
    alignable = store.alignment.read([text.vector_id for text in texts])
    ours = to_comparable(language, left, alignable, reader)
    explanations = []
    for other, lexical in zip(others, lexical_scores(store, left, others), strict=True):
        started = time.perf_counter()
        theirs = to_comparable(language, other, alignable, reader)
        comparison = compare_prepared(
            scoring, ours, theirs, lexical, reader, differences=differences
        )
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

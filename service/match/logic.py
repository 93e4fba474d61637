"""POST /match: a text, a stored document or examples -> the documents that match; all pairs."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, replace

from index.search.calibrate import UNMEASURED, Scoring
from index.search.pairs import Pair, find_pairs, open_pair_search
from index.search.records import DEFAULT_MODE, Bounds, Mode
from service.compare.logic import Explanation, explain
from service.documents.logic import export_parts, json_lines
from service.encode import Query, StoredQuery, read_queries
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.match.rerank import retrieve_and_rerank, validate_rerank
from service.match.retrieve import Matches, retrieve, retrieve_by_examples
from service.match.schemas import MAX_QUERIES, ExplainBody, MatchRequest
from service.metrics import Stage

MAX_EXPLAINED = 100  # matches of one request, of all its queries: each takes some milliseconds


async def match(
    collection: Collection, queries: Sequence[Query], request: MatchRequest
) -> list[Matches]:
    """Find the documents that match each query, or all examples together.

    Args:
        collection: what to search, and with what.
        queries: texts, which are encoded, or stored documents, whose vectors are used and which
            are left out of their own matches; of examples, those that matches are like first.
        request: what to do for each of them.

    Raises:
        InvalidInputError: too many matches are to be explained, a bound needs a calibration that
            does not exist, there are too many examples or no reranker, or a text is refused.
    """
    search, liked = request.to_search(collection.engine.settings), len(request.like or ())
    errors, answers = list[FieldError](), 1 if liked else len(queries)
    if request.explain and min(request.explain.matches, search.top_k) * answers > MAX_EXPLAINED:
        detail = f"asks for more than {MAX_EXPLAINED} explanations in one request"
        errors.append(FieldError("#/explain", detail, MAX_EXPLAINED))
    errors += validate_bounds(collection.scoring.present, search.mode, search.bounds)
    if request.rerank is not None:
        errors += validate_rerank(collection, search)
    if len(queries) > MAX_QUERIES:
        detail = f"has, with unlike, more than {MAX_QUERIES} examples"
        errors.append(FieldError("#/like", detail, MAX_QUERIES))
    if errors:
        raise InvalidInputError(errors)
    (first, *others) = queries
    if isinstance(first, StoredQuery) and not (others or liked or request.rerank):
        found = await retrieve(collection, [first], search)
    else:
        texts = await read_queries(collection, queries, strict=request.strict)
        if liked:
            like, unlike = texts[:liked], texts[liked:]
            found = [await retrieve_by_examples(collection, like, unlike, search)]
        else:
            found = await retrieve_and_rerank(collection, texts, search, request.rerank)
    return [await _explain(collection, matches, request.explain) for matches in found]


def validate_bounds(scoring: Scoring, mode: Mode, bounds: Bounds) -> list[FieldError]:
    """Return the bounds that need a calibration that does not exist."""
    errors = []
    if bounds.min_probability is not None and scoring.probability_map(mode) is None:
        # `longmatch tune` changes the weights of the scores, and with them what they mean.
        why = scoring.unmeasured or "no calibration of the checkpoint, or after tuning"
        errors.append(FieldError("#/min_probability", f"{mode} scores have no probability: {why}"))
    if bounds.max_false_positive_rate is not None and scoring.null_distribution(mode) is None:
        detail = f"{mode} scores have no false positive rate: {scoring.unmeasured or UNMEASURED}"
        errors.append(FieldError("#/max_false_positive_rate", detail))
    return errors


async def _explain(collection: Collection, found: Matches, options: ExplainBody | None) -> Matches:
    """Explain the first matches, of several examples by the one that each matches best."""
    if options is None:
        return found
    started = time.perf_counter()
    of_text: dict[int, list[str]] = {}
    for hit in found.answer.hits[: options.matches]:
        best = hit.like_scores.index(max(hit.like_scores)) if hit.like_scores else 0
        of_text.setdefault(best, []).append(hit.id)
    explanations: dict[str, Explanation] = {}
    for number, ids in of_text.items():
        explanations |= await explain(collection, found.texts[number], ids, options.passages)
    seconds: dict[Stage, float] = {**found.seconds, "explain": time.perf_counter() - started}
    return replace(found, explanations=explanations, seconds=seconds)


NO_BOUND = (
    "give this, min_vector_score, min_probability or max_false_positive_rate: "
    "all pairs are too many"
)


def validate_pair_bounds(
    scoring: Scoring, bounds: Bounds, least_cosine: float | None
) -> list[FieldError]:
    """Return what is wrong with the bounds of pairs: none is given, or one is not calibrated."""
    if bounds == Bounds() and least_cosine is None:
        return [FieldError("", NO_BOUND, parameter="min_score")]
    return [
        FieldError("", bound.detail, parameter=bound.pointer.removeprefix("#/"))
        for bound in validate_bounds(scoring, DEFAULT_MODE, bounds)
    ]


def pair_lines(pairs: Sequence[Pair]) -> bytes:
    """Return pairs as JSON Lines."""
    return json_lines(map(asdict, pairs))


async def export_pairs(
    collection: Collection, bounds: Bounds, least_cosine: float | None, *, collapse: bool
) -> AsyncIterator[bytes]:
    """Return the pairs of similar documents as JSON Lines, which are found while they are read.

    InvalidInputError if there is no bound, or no calibration for one.
    """
    errors = validate_pair_bounds(collection.scoring.present, bounds, least_cosine)
    if errors:
        raise InvalidInputError(errors)

    def parts() -> Iterator[bytes]:
        scoring = collection.scoring.present
        search = open_pair_search(collection.data, scoring, bounds, least_cosine, collapse=collapse)
        for _, pairs in find_pairs(search):
            yield pair_lines(pairs)

    return await export_parts(collection.engine, parts())

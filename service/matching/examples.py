"""POST /match with `like`: texts or stored documents -> the documents that match all of them."""

import time
from collections.abc import Sequence
from dataclasses import replace

from service.encode import EncodedText
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.matching.compare import ExplainOptions, Explanation, explain
from service.matching.match import MAX_QUERIES, MatchOptions, validate_search
from service.matching.queries import Query, read_queries
from service.matching.retrieve import Matches, retrieve_by_examples
from service.metrics import Stage

OF_ONE_DOCUMENT = ("rerank", "min_probability", "max_false_positive_rate")  # fields of the request


async def match_examples(
    collection: Collection, like: Sequence[Query], unlike: Sequence[Query], options: MatchOptions
) -> Matches:
    """Find the documents that match examples, and do not match others better.

    Args:
        collection: what to search, and with what.
        like: at least one text or stored document; stored ones are left out of the matches.
        unlike: others.
        options: without reranking, and without bounds that need a calibration.

    Raises:
        InvalidInputError: a number is over its limit, an option is not possible, or a text is
            refused.
        DocumentNotFoundError: a stored document does not exist.
        ServiceError: the other errors of `encode_texts`.
    """
    if errors := _validate(like, unlike, options):
        raise InvalidInputError(errors)
    texts = await read_queries(collection, [*like, *unlike], strict=options.strict)
    liked, unliked = texts[: len(like)], texts[len(like) :]
    found = await retrieve_by_examples(collection, liked, unliked, options.search)
    if options.explain is None:
        return found
    return await _explain(collection, liked, found, options.explain)


def _validate(
    like: Sequence[Query], unlike: Sequence[Query], options: MatchOptions
) -> list[FieldError]:
    bounds = options.search.bounds
    errors = validate_search(options, 1)
    if len(like) + len(unlike) > MAX_QUERIES:
        detail = f"has, with unlike, more than {MAX_QUERIES} examples"
        errors.append(FieldError("#/like", detail, MAX_QUERIES))
    given = (options.rerank, bounds.min_probability, bounds.max_false_positive_rate)
    detail = "is of one document, not of several examples"
    errors += [
        FieldError(f"#/{name}", detail)
        for name, value in zip(OF_ONE_DOCUMENT, given, strict=True)
        if value is not None
    ]
    return errors


async def _explain(
    collection: Collection, liked: Sequence[EncodedText], found: Matches, options: ExplainOptions
) -> Matches:
    """Explain the first matches, each by the example that it matches best."""
    started = time.perf_counter()
    explanations: dict[str, Explanation] = {}
    first = found.matches[: options.matches]
    for number, text in enumerate(liked):
        scores = ((one.id, one.like_scores) for one in first)
        nearest = [name for name, own in scores if own.index(max(own)) == number]
        if nearest:
            explanations |= await explain(collection, text, nearest, options)
    seconds: dict[Stage, float] = {**found.seconds, "explain": time.perf_counter() - started}
    return replace(found, explanations=explanations, seconds=seconds)

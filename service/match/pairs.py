"""The pairs of similar documents of a corpus as lines of JSON, for GET /pairs and `pairs`."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict

from index.search.calibrate import ScoreCalibrator
from index.search.pairs import Pair, PairSearch, find_pairs, open_pair_search
from index.search.records import DEFAULT_MODE, Bounds
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.match.logic import validate_bounds
from service.threads import run_in

NO_BOUND = (
    "give this, min_vector_score, min_probability or max_false_positive_rate: "
    "all pairs are too many"
)


def validate_pair_bounds(
    calibrator: ScoreCalibrator, bounds: Bounds, least_cosine: float | None
) -> list[FieldError]:
    """Return what is wrong with the bounds of pairs: none is given, or one is not calibrated."""
    if bounds == Bounds() and least_cosine is None:
        return [FieldError("", NO_BOUND, parameter="min_score")]
    return [
        FieldError("", bound.detail, parameter=bound.pointer.removeprefix("#/"))
        for bound in validate_bounds(calibrator, DEFAULT_MODE, bounds)
    ]


def pair_lines(pairs: Sequence[Pair]) -> bytes:
    """Return pairs as JSON Lines."""
    return "".join(f"{json.dumps(asdict(pair), ensure_ascii=False)}\n" for pair in pairs).encode()


async def export_pairs(
    collection: Collection, bounds: Bounds, least_cosine: float | None, *, collapse: bool
) -> AsyncIterator[bytes]:
    """Return the pairs of similar documents as JSON Lines, which are found while they are read.

    InvalidInputError if there is no bound, or no calibration for one. The first part is found
    before this returns. A later failure truncates the lines.
    """
    errors = validate_pair_bounds(collection.calibrator, bounds, least_cosine)
    if errors:
        raise InvalidInputError(errors)
    engine = collection.engine

    def begin() -> tuple[Iterator[tuple[int, list[Pair]]], bytes | None]:
        search: PairSearch = open_pair_search(
            collection.data, collection.scoring.present, bounds, least_cosine, collapse=collapse
        )
        found = find_pairs(search)
        return found, _next_lines(found)

    with engine.exports.admit():
        found, first = await run_in(engine.exporter, begin)
    return _all_lines(collection, found, first)


async def _all_lines(
    collection: Collection, found: Iterator[tuple[int, list[Pair]]], lines: bytes | None
) -> AsyncIterator[bytes]:
    while lines is not None:
        if lines:
            yield lines
        lines = await run_in(collection.engine.exporter, _next_lines, found)


def _next_lines(found: Iterator[tuple[int, list[Pair]]]) -> bytes | None:
    """Return the next lines, perhaps none; None after the last ones."""
    part = next(found, None)
    return None if part is None else pair_lines(part[1])

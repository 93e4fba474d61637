"""The pairs of similar documents of a corpus as lines of JSON, for GET /pairs and `pairs`."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict

from index.search.calibrate import ScoreCalibrator
from index.search.pairs import Pair, find_pairs, open_pair_search
from index.search.records import DEFAULT_MODE, Bounds
from service.documents.logic import export_parts, json_lines
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.match.logic import validate_bounds

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
    return json_lines(map(asdict, pairs))


async def export_pairs(
    collection: Collection, bounds: Bounds, least_cosine: float | None, *, collapse: bool
) -> AsyncIterator[bytes]:
    """Return the pairs of similar documents as JSON Lines, which are found while they are read.

    InvalidInputError if there is no bound, or no calibration for one.
    """
    errors = validate_pair_bounds(collection.calibrator, bounds, least_cosine)
    if errors:
        raise InvalidInputError(errors)

    def parts() -> Iterator[bytes]:
        scoring = collection.scoring.present
        search = open_pair_search(collection.data, scoring, bounds, least_cosine, collapse=collapse)
        for _, pairs in find_pairs(search):
            yield pair_lines(pairs)

    return await export_parts(collection.engine, parts())

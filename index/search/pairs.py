"""All pairs of documents of a corpus whose semantic score is inside bounds.

Every two document vectors of the store are compared, tile by tile of the matrix of their cosines,
so that memory does not grow with it. Only pairs that are inside the bounds are calibrated: their
least cosine is found before, as every measure is monotone in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from index.directory.data_directory import DataDirectory
from index.search.calibrator import ScoreCalibrator, calibrate_scores, within
from index.search.fusion import LinearFusion, semantic_scores
from index.search.records import Bounds
from index.vectors.bulk import products

TILE = 2_048  # documents of a side: 16 MiB of cosines
_BAND = 32  # rows of a tile whose pairs are given together
_ROUNDING = 1e-5  # cosines are compared with the least one with this much room
_HALVINGS = 40
_READ = 10_000  # documents at once whose families are read


@dataclass(frozen=True, slots=True)
class Pair:
    """Two documents, the one that was stored first on the left.

    Attributes:
        left: id of the first document.
        right: id of the second one.
        left_title: of the first document.
        right_title: of the second one.
        score: as a semantic search without alignment gives it.
        probability: that they match; None where the checkpoint has no calibration for it.
        false_positive_rate: share of random pairs of the corpus that score as high; None where
            the data directory has no calibration.
    """

    left: str
    right: str
    left_title: str
    right_title: str
    score: float
    probability: float | None
    false_positive_rate: float | None


@dataclass(frozen=True, slots=True)
class PairSearch:
    """What `find_pairs` compares.

    Attributes:
        data: the data directory.
        fusion: how scores are made of cosines.
        calibrator: of the scores.
        bounds: that a pair must meet.
        vector_ids: Int64[N], ascending, of the documents.
        sequence: of the store when these were all of them.
    """

    data: DataDirectory
    fusion: LinearFusion
    calibrator: ScoreCalibrator
    bounds: Bounds
    vector_ids: Int64
    sequence: int

    @property
    def tiles(self) -> int:
        """How many tiles there are: those on and above the diagonal."""
        side = -(-len(self.vector_ids) // TILE)
        return side * (side + 1) // 2


def open_pair_search(
    data: DataDirectory,
    fusion: LinearFusion,
    calibrator: ScoreCalibrator,
    bounds: Bounds,
    *,
    collapse: bool = False,
) -> PairSearch:
    """Choose the documents to compare: all, or of each family the one that was stored first."""
    change = data.store.changes_since(0)
    ids = np.asarray(change.added, dtype=np.int64)
    if collapse:
        ids = _first_of_families(data, ids)
    return PairSearch(data, fusion, calibrator, bounds, ids, change.sequence)


def find_pairs(search: PairSearch, first_tile: int = 0) -> Iterator[tuple[int, list[Pair]]]:
    """Find the pairs inside the bounds, each once, always in the same order.

    Documents that are removed meanwhile, or are damaged, are left out from then on.

    Yields:
        How many tiles are done, and some pairs, perhaps none: at least once for every tile.
    """
    least = _least_cosine(search)
    starts = range(0, len(search.vector_ids), TILE)
    tile = 0
    for top in starts:
        rows: tuple[Int64, Float32] | None = None
        for left in starts[top // TILE :]:
            if tile >= first_tile:
                rows = rows or _vectors(search, top)
                columns = rows if left == top else _vectors(search, left)
                for pairs in _pairs_of_tile(search, rows, columns, least):
                    yield tile, pairs
                yield tile + 1, []
            tile += 1


def _pairs_of_tile(
    search: PairSearch,
    rows: tuple[Int64, Float32],
    columns: tuple[Int64, Float32],
    least: float,
) -> Iterator[list[Pair]]:
    """Yield the pairs of a tile, a band of rows at a time."""
    cosines = np.clip(products(rows[1], columns[1]), -1.0, 1.0)
    for start in range(0, len(cosines), _BAND):
        band = slice(start, start + _BAND)
        inside = cosines[band] >= least - _ROUNDING
        inside &= rows[0][band, np.newaxis] < columns[0]
        i, j = np.nonzero(inside)
        if len(i):
            found = cosines[band][i, j]
            yield _described(search, rows[0][band][i], columns[0][j], found)


def _described(search: PairSearch, left: Int64, right: Int64, cosines: Float32) -> list[Pair]:
    """Return the pairs of Int64[N] and Int64[N] that are inside the bounds, with titles."""
    scores = semantic_scores(search.fusion, "semantic", cosines).tolist()
    calibrated = calibrate_scores(search.calibrator, "semantic", scores)
    kept = [
        row
        for row, (score, measures) in enumerate(zip(scores, calibrated, strict=True))
        if within(search.bounds, score, measures)
    ]
    needed = np.union1d(left[kept], right[kept]).tolist()
    summaries = search.data.store.get(needed, skip_damaged=True)
    pairs = []
    for row in kept:
        ours, theirs = summaries.get(int(left[row])), summaries.get(int(right[row]))
        if ours is None or theirs is None:
            continue
        probability, rate = calibrated[row].probability, calibrated[row].false_positive_rate
        titles = ours.title, theirs.title
        pairs.append(Pair(ours.id, theirs.id, *titles, scores[row], probability, rate))
    return pairs


def _least_cosine(search: PairSearch) -> float:
    """Return the least cosine inside the bounds, to 2**-39; above 1 if there is none."""

    def inside(cosine: float) -> bool:
        cosines = np.array([cosine], dtype=np.float32)
        scores = semantic_scores(search.fusion, "semantic", cosines).tolist()
        (measures,) = calibrate_scores(search.calibrator, "semantic", scores)
        return within(search.bounds, scores[0], measures)

    low, high = -1.0, 1.0
    if inside(low):
        return low
    if not inside(high):
        return 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if inside(middle) else (middle, high)
    return high


def _vectors(search: PairSearch, start: int) -> tuple[Int64, Float32]:
    ids = search.vector_ids[start : start + TILE]
    return search.data.store.vectors(ids, skip_damaged=True)


def _first_of_families(data: DataDirectory, ids: Int64) -> Int64:
    """Return ids Int64[N], ascending, without those whose family has one before them."""
    seen: set[int] = set()
    kept = []
    for start in range(0, len(ids), _READ):
        part = ids[start : start + _READ].tolist()
        families = data.store.families.of(part)
        for vector_id in part:
            family = families.get(vector_id)
            if family is None or family not in seen:
                kept.append(vector_id)
            if family is not None:
                seen.add(family)
    return np.array(kept, dtype=np.int64)

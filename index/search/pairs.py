"""All pairs of documents of a corpus that match, with the scores that a search gives them.

Every two document vectors of the store are compared, tile by tile of the matrix of their cosines,
so that memory does not grow with it. Only pairs whose cosine is high enough are aligned, compared
by their words and calibrated.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from encoder.alignment.scoring import align_pairs
from encoder.arrays import Float32, Int64
from encoder.comparison.result import PairScore
from index.directory.data_directory import DataDirectory
from index.search.align import score_pairs
from index.search.calibrate import Scoring, within
from index.search.records import Bounds
from index.vectors.faiss.exact import products

TILE = 2_048  # documents of a side: 16 MiB of cosines
_BAND = 32  # rows of a tile whose pairs are given together
_READ = 10_000  # documents at once whose families are read


@dataclass(frozen=True, slots=True)
class Pair:
    """Two documents, the one that was stored first on the left.

    Attributes:
        left: id of the first document.
        right: id of the second one.
        left_title: of the first document.
        right_title: of the second one.
        score: as a hybrid search gives it.
        vector_score: cosine of the two document vectors.
        probability: that they match; None where it is not known.
        false_positive_rate: share of random pairs of the corpus that score as high; or None.
    """

    left: str
    right: str
    left_title: str
    right_title: str
    score: float
    vector_score: float
    probability: float | None
    false_positive_rate: float | None


@dataclass(frozen=True, slots=True)
class PairSearch:
    """What `find_pairs` compares.

    Attributes:
        data: the data directory.
        scoring: how scores are combined and calibrated.
        bounds: that a pair must meet.
        least_cosine: of the document vectors of a pair.
        vector_ids: Int64[N], ascending, of the documents.
        sequence: of the store when these were all of them.
    """

    data: DataDirectory
    scoring: Scoring
    bounds: Bounds
    least_cosine: float
    vector_ids: Int64
    sequence: int

    @property
    def tiles(self) -> int:
        """How many tiles there are: those on and above the diagonal."""
        side = -(-len(self.vector_ids) // TILE)
        return side * (side + 1) // 2


def open_pair_search(
    data: DataDirectory,
    scoring: Scoring,
    bounds: Bounds,
    least_cosine: float | None = None,
    *,
    collapse: bool = False,
) -> PairSearch:
    """Choose the documents to compare: all, or of each family the one that was stored first.

    Args:
        data: the data directory.
        scoring: how scores are combined and calibrated.
        bounds: that a pair must meet.
        least_cosine: of the document vectors of a pair; None for what about 1 of 1,000 random pairs
            reach, or for no limit where that was not measured.
        collapse: whether to compare only one document of each family.
    """
    if least_cosine is None:
        corpus = scoring.corpus
        least_cosine = -1.0 if corpus is None else corpus.near_cosine
    sequence, ids = data.store.log.added_after(0)
    if collapse:
        ids = _first_of_families(data, ids)
    return PairSearch(data, scoring, bounds, least_cosine, ids, sequence)


def find_pairs(search: PairSearch, first_tile: int = 0) -> Iterator[tuple[int, list[Pair]]]:
    """Find the pairs inside the bounds, each once, always in the same order.

    Documents that are removed meanwhile, or are damaged, are left out from then on.

    Yields:
        How many tiles are done, and some pairs, perhaps none: at least once for every tile.
    """
    starts = range(0, len(search.vector_ids), TILE)
    tile = 0
    for top in starts:
        rows: tuple[Int64, Float32] | None = None
        for left in starts[top // TILE :]:
            if tile >= first_tile:
                rows = rows or _vectors(search, top)
                columns = rows if left == top else _vectors(search, left)
                for pairs in _pairs_of_tile(search, rows, columns):
                    yield tile, pairs
                yield tile + 1, []
            tile += 1


def _pairs_of_tile(
    search: PairSearch,
    rows: tuple[Int64, Float32],
    columns: tuple[Int64, Float32],
) -> Iterator[list[Pair]]:
    """Yield the pairs of a tile, a band of rows at a time."""
    cosines = np.clip(products(rows[1], columns[1]), -1.0, 1.0)
    for start in range(0, len(cosines), _BAND):
        band = slice(start, start + _BAND)
        inside = cosines[band] >= search.least_cosine
        inside &= rows[0][band, np.newaxis] < columns[0]
        i, j = np.nonzero(inside)
        if len(i):
            found = cosines[band][i, j]
            yield _described(search, rows[0][band][i], columns[0][j], found)


def _described(search: PairSearch, left: Int64, right: Int64, cosines: Float32) -> list[Pair]:
    """Return the pairs of Int64[N] and Int64[N] that are inside the bounds, with titles."""
    pairs = zip(left.tolist(), right.tolist(), _scored(search, left, right, cosines), strict=True)
    kept = [
        (ours, theirs, found)
        for ours, theirs, found in pairs
        if within(search.bounds, found.score, found)
    ]
    needed = sorted({vector_id for ours, theirs, _ in kept for vector_id in (ours, theirs)})
    summaries = search.data.store.get(needed)
    return [
        Pair(
            left=summaries[ours].id,
            right=summaries[theirs].id,
            left_title=summaries[ours].title,
            right_title=summaries[theirs].title,
            score=found.score,
            vector_score=found.vector_score,
            probability=found.probability,
            false_positive_rate=found.false_positive_rate,
        )
        for ours, theirs, found in kept
        if ours in summaries and theirs in summaries
    ]


def _scored(search: PairSearch, left: Int64, right: Int64, cosines: Float32) -> Iterator[PairScore]:
    """Yield the scores of pairs of Int64[N], ascending, and Int64[N]."""
    store = search.data.store
    ids = np.union1d(left, right)
    read = store.alignment.read(ids.tolist())
    alignment = None
    if read is not None:
        rows = np.searchsorted(ids, np.stack([left, right], axis=1))
        blocks = [read.blocks.get(vector_id) for vector_id in ids.tolist()]
        alignment = align_pairs(blocks, rows, lambda _: None)
    firsts, starts = np.unique(left, return_index=True)
    for vector_id, start, end in zip(firsts, starts, [*starts[1:], len(left)], strict=True):
        terms = store.words.read_stored(int(vector_id))
        yield from score_pairs(
            search.scoring,
            "hybrid" if len(terms) else "semantic",
            cosines[start:end],
            None if alignment is None else alignment[start:end],
            store.words.score(terms, right[start:end]),
        )


def _vectors(search: PairSearch, start: int) -> tuple[Int64, Float32]:
    ids = search.vector_ids[start : start + TILE]
    return search.data.store.compared(ids)


def _first_of_families(data: DataDirectory, ids: Int64) -> Int64:
    """Return ids Int64[N], ascending, without those whose family has one before them."""
    kept: list[int] = []
    for start in range(0, len(ids), _READ):
        part = ids[start : start + _READ].tolist()
        families = data.store.families.of(part)  # by the least vector id in each
        kept += [vector_id for vector_id in part if families.get(vector_id, vector_id) == vector_id]
    return np.array(kept, dtype=np.int64)

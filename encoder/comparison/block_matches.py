"""Runs of sentence blocks of two texts whose vectors match, along the diagonals."""

from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Float32, Int64

STEP = 2  # blocks from one pair of a run to the next: a gap of one
FEWEST_BLOCKS = 10  # of two texts together, for a background of their own
_SAMPLE = 256  # blocks of a text, evenly spaced, on which its background is measured


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Matching blocks `left` of one text and `right` of the other, as (first, after the last).

    Attributes:
        score: mean cosine of its pairs.
    """

    left: tuple[int, int]
    right: tuple[int, int]
    score: float


@dataclass(frozen=True, slots=True)
class Background:
    """The distribution of cosines of unrelated blocks of two texts.

    Attributes:
        centre: median of the cosines of all pairs.
        spread: standard deviation, estimated from the median absolute deviation.
    """

    centre: float
    spread: float

    def threshold(self, deviations: float, least: float) -> float:
        """Return the cosine this many deviations above the centre, but at least `least`."""
        return max(least, self.centre + deviations * self.spread)


def measure_background(left: Float32, right: Float32, short: Background) -> Background:
    """Measure the background of two texts from the pairs of blocks within and between them.

    Few of all pairs match, even of a text with itself, so that they do not affect the median.

    Args:
        left: [S, H] block vectors of one text, unit norm.
        right: [T, H] of the other.
        short: the background of two texts that are too short to measure their own.
    """
    if len(left) + len(right) < FEWEST_BLOCKS:
        return short
    left, right = (rows[:: -(-len(rows) // _SAMPLE)] for rows in (left, right))
    cosines = np.concatenate([(left @ right.T).ravel(), _within(left), _within(right)])
    centre = float(np.median(cosines))
    spread = 1.4826 * float(np.median(np.abs(cosines - centre)))
    return Background(centre, spread)


def match_blocks(
    cosines: Float32, threshold: float, usable: Bool, places: tuple[Int64, Int64]
) -> list[BlockRun]:
    """Find the runs of matching blocks.

    A pair matches when its cosine reaches the threshold and is the best of its row and of its
    column. Pairs join a run when the next is one or two blocks on in both texts, so that each gap
    is one block at most; the runs themselves may be in any order.

    Args:
        cosines: [S, T] of all pairs of blocks.
        threshold: least cosine of a matching pair.
        usable: [S, T], pairs that may match.
        places: [S] and [T], the numbers of the blocks in their texts, which have more blocks where
            some were not encoded.
    """
    ours, theirs = places[0].tolist(), places[1].tolist()
    candidates = np.where(usable, cosines, -2.0)
    rows = np.flatnonzero(candidates.max(axis=1, initial=-2.0) >= threshold)
    columns = candidates[rows].argmax(axis=1)
    mutual = candidates[:, columns].argmax(axis=0) == rows if len(rows) else rows.astype(bool)
    runs: list[list[tuple[int, int]]] = []
    ends: dict[tuple[int, int], int] = {}
    for row, column in zip(rows[mutual].tolist(), columns[mutual].tolist(), strict=True):
        run = _run_before(ends, ours[row], theirs[column])
        if run is None:
            run = len(runs)
            runs.append([])
        runs[run].append((row, column))
        ends[ours[row], theirs[column]] = run
    return [_block_run(run, cosines) for run in runs]


def _run_before(ends: dict[tuple[int, int], int], ours: int, theirs: int) -> int | None:
    for back in range(1, STEP + 1):
        for across in range(1, STEP + 1):
            run = ends.get((ours - back, theirs - across))
            if run is not None:
                return run
    return None


def _block_run(pairs: list[tuple[int, int]], cosines: Float32) -> BlockRun:
    rows, columns = zip(*pairs, strict=True)
    score = float(np.mean([cosines[pair] for pair in pairs]))
    return BlockRun((rows[0], rows[-1] + 1), (columns[0], columns[-1] + 1), score)


def _within(vectors: Float32) -> Float32:
    rows, columns = np.triu_indices(len(vectors), 1)
    cosines: Float32 = (vectors @ vectors.T)[rows, columns]
    return cosines

"""What two texts share: equal words, sentences in other words, blocks with close vectors.

Exact matches are shared shingles, extended as far as possible. A shingle is a sequence of
consecutive words (Broder, "On the resemblance and containment of documents", 1997). Time is linear
in the number of words: each is compared a bounded number of times.

Sentences are compared by the cosine of their words, each weighted by its inverse sentence frequency
in the two texts (Sanchez-Perez, Sidorov and Gelbukh, "A winning approach to text alignment for text
reuse detection at PAN 2014", section 2.2).

Blocks match in runs along the diagonals of the matrix of their cosines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from encoder.arrays import Bool, Float32, Float64, Int64, UInt64
from encoder.terms.segmentation import word_spans


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one text, in order.

    Attributes:
        codes: Int64[W], equal for equal words as search counts them; valid in this process only.
        starts: Int64[W], the first character of each.
        ends: Int64[W], the character after each.
    """

    codes: Int64
    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.codes)


def locate_words(text: str) -> Words:
    """Find the words of a text. Time is linear in its length."""
    found = [(hash(word), begin, end) for word, begin, end in word_spans(text)]
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Words(*(np.ascontiguousarray(table[:, column]) for column in range(3)))


def word_range(words: Words, start: int, end: int) -> tuple[int, int]:
    """Return the range of the words that lie within characters `start:end`."""
    first = int(np.searchsorted(words.starts, start, side="left"))
    last = int(np.searchsorted(words.ends, end, side="right"))
    return first, max(first, last)


def words_in(words: Words, ranges: Sequence[tuple[int, ...]]) -> Bool:
    """Return which words lie in any of the ranges (first, after the last), Bool[W]."""
    table = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    changes = np.bincount(table[:, 0], minlength=len(words) + 1)
    changes = changes - np.bincount(table[:, 1], minlength=len(words) + 1)
    inside: Bool = np.cumsum(changes[: len(words)]) > 0
    return inside


class Box(NamedTuple):
    """Words `left_start:left_end` of one text and `right_start:right_end` of the other."""

    left_start: int
    left_end: int
    right_start: int
    right_end: int

    @property
    def shorter(self) -> int:
        """Words of the shorter side."""
        return min(self.left_end - self.left_start, self.right_end - self.right_start)


def merge_spans(boxes: Sequence[Box], gap: int) -> list[Box]:
    """Join boxes that are at most `gap` words apart in both texts; in the order of the left text.

    Boxes are separated where a text has a wider gap, on one side and then on the other, until no
    part has one (Sanchez-Perez and others, 2014, section 2.3). Within a part the order of the two
    sides may differ: a paraphrase may reorder sentences.
    """
    waiting = [list(boxes)] if boxes else []
    whole: list[Box] = []
    while waiting:
        part = waiting.pop()
        pieces = [piece for half in _parted(part, 0, gap) for piece in _parted(half, 2, gap)]
        if len(pieces) == 1:
            whole.append(_hull(part))
        else:
            waiting.extend(pieces)
    return sorted(whole)


def _parted(boxes: list[Box], side: int, gap: int) -> Iterator[list[Box]]:
    """Yield the boxes in groups without a gap on the side whose start is field `side`."""
    ordered = sorted(boxes, key=lambda box: box[side])
    first, reached = 0, ordered[0][side + 1]
    for number, (_, box) in enumerate(pairwise(ordered), start=1):
        if box[side] > reached + gap:
            yield ordered[first:number]
            first = number
        reached = max(reached, box[side + 1])
    yield ordered[first:]


def _hull(boxes: Sequence[Box]) -> Box:
    return Box(
        min(box.left_start for box in boxes),
        max(box.left_end for box in boxes),
        min(box.right_start for box in boxes),
        max(box.right_end for box in boxes),
    )


_CANDIDATES = 8  # positions tried of a repeated shingle
_BASE = np.uint64(0x9E3779B97F4A7C15)
_FIRST_STEP = 64


def find_exact_matches(left: Words, right: Words, shingle: int) -> list[Box]:
    """Find the passages of at least `shingle` words that two texts share.

    Every word of either text in a shared shingle is in a match; each occurrence of a passage that
    one text repeats is matched with an occurrence in the other.

    Returns:
        Equal words, in the order of the left text; neighbours may overlap by less than a shingle.
    """
    there, back = _Shingles.of(left.codes, shingle), _Shingles.of(right.codes, shingle)
    found = list(_sweep(left.codes, right.codes, there, back, np.zeros(len(left), dtype=bool)))
    covered = np.zeros(len(right), dtype=bool)
    for _, theirs, length in found:
        covered[theirs : theirs + length] = True
    again = _sweep(right.codes, left.codes, back, there, covered)
    found += [(ours, theirs, length) for theirs, ours, length in again]
    boxes = {Box(ours, ours + size, theirs, theirs + size) for ours, theirs, size in found}
    return sorted(boxes)


@dataclass(frozen=True, slots=True)
class _Shingles:
    """The shingles of a text: the hash of each, and the places in the order of their hashes."""

    hashes: UInt64
    places: Int64
    ordered: UInt64
    length: int

    @classmethod
    def of(cls, codes: Int64, length: int) -> "_Shingles":
        count = max(0, len(codes) - length + 1)
        hashes = np.zeros(count, dtype=np.uint64)
        for word in range(length):
            hashes = hashes * _BASE + codes[word : word + count].view(np.uint64)
        places = np.argsort(hashes, kind="stable")
        return cls(hashes, places, hashes[places], length)


def _sweep(
    codes: Int64, others: Int64, mine: _Shingles, theirs: _Shingles, covered: Bool
) -> Iterator[tuple[int, int, int]]:
    """Scan a text and yield the longest match of each shared part not yet covered.

    As its first word, that of the other text, and how many words they are.
    """
    first = np.searchsorted(theirs.ordered, mine.hashes, side="left")
    last = np.searchsorted(theirs.ordered, mine.hashes, side="right")
    shared = np.flatnonzero(last > first)
    turn = 0
    while turn < len(shared):
        place = int(shared[turn])
        stop = place + 1
        if not covered[place : place + mine.length].all():
            start, count = int(first[place]), int(last[place] - first[place])
            candidates = theirs.places[start : start + min(count, _CANDIDATES)].tolist()
            length, other = max(
                (_common_length(codes[place:], others[candidate:]), -candidate)
                for candidate in candidates
            )
            if length >= mine.length:  # different words may have equal hashes
                yield place, -other, length
                stop = place + length - mine.length + 1
        turn = int(np.searchsorted(shared, stop, side="left"))


def _common_length(first: Int64, other: Int64) -> int:
    """Return the length of the common prefix of two texts, in words."""
    most = min(len(first), len(other))
    done, step = 0, _FIRST_STEP
    while done < most:
        stop = min(done + step, most)
        differing = np.flatnonzero(first[done:stop] != other[done:stop])
        if len(differing):
            return done + int(differing[0])
        done, step = stop, step * 2
    return most


LONGEST_SENTENCE = 40  # words; longer ones, and text without punctuation, are cut
_MOST_PAIRS = 2_000_000  # of sentences that share a word; the most frequent words are dropped first
_MOST_CELLS = 16_000_000


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of a text as ranges of words: Int64[N] each, in order."""

    first: Int64
    last: Int64

    def __len__(self) -> int:
        return len(self.first)


def cut_sentences(spans: Sequence[tuple[int, int]], words: Words) -> Sentences:
    """Return the sentences of a text as ranges of words, long ones cut into equal pieces."""
    ranges: list[tuple[int, int]] = []
    for span in spans:
        first, last = word_range(words, *span)
        pieces = -(-(last - first) // LONGEST_SENTENCE)
        cuts = [first + (last - first) * cut // pieces for cut in range(pieces + 1) if pieces]
        ranges.extend(pairwise(cuts))
    table = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    return Sentences(table[:, 0], table[:, 1])


def match_sentences(
    left: tuple[Words, Sentences],
    right: tuple[Words, Sentences],
    *,
    least_cosine: float,
    least_shared: int,
) -> list[Box]:
    """Link each sentence to the most similar one of the other text.

    Args:
        left: words of one text, with code 0 for those to ignore; its sentences.
        right: of the other.
        least_cosine: of the weighted words of two linked sentences.
        least_shared: number of different words that they share.

    Returns:
        Boxes in the order of the left text; a sentence can be the best of several others.
    """
    ours, theirs = _entries(*left), _entries(*right)
    if not len(ours) or not len(theirs):
        return []
    weights = _weights(ours, theirs, len(left[1]) + len(right[1]))
    pairs, cosines, shared = _join(
        _Weighted.of(ours, weights[: len(ours)], len(left[1])),
        _Weighted.of(theirs, weights[len(ours) :], len(right[1])),
        len(right[1]),
    )
    good = (cosines >= least_cosine) & (shared >= least_shared)
    rows, columns = np.divmod(pairs[good], len(right[1]))
    best = _best(rows, cosines[good]) | _best(columns, cosines[good])
    return [
        Box(
            int(left[1].first[row]),
            int(left[1].last[row]),
            int(right[1].first[column]),
            int(right[1].last[column]),
        )
        for row, column in zip(rows[best].tolist(), columns[best].tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Words in sentences in the order of their codes, with weights of unit norm a sentence."""

    codes: Int64
    sentences: Int64
    weights: Float64

    @classmethod
    def of(cls, entries: Int64, weights: Float64, sentences: int) -> "_Weighted":
        norms = np.sqrt(np.bincount(entries[:, 1], weights**2, sentences))
        unit = weights / np.maximum(norms[entries[:, 1]], 1e-12)
        return cls(entries[:, 0], entries[:, 1], unit)


def _entries(words: Words, sentences: Sentences) -> Int64:
    """Return [E, 2]: code and sentence of each different word of each sentence, by code."""
    lengths = sentences.last - sentences.first
    owner = np.repeat(np.arange(len(sentences)), lengths)
    places = _ranges(sentences.first, lengths)
    table: Int64 = np.stack([words.codes[places], owner], axis=1)
    table = table[table[:, 0] != 0]
    if not len(table):
        return table
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    fresh = np.ones(len(table), dtype=bool)
    fresh[1:] = (table[1:] != table[:-1]).any(axis=1)
    found: Int64 = table[fresh]
    return found


def _ranges(starts: Int64, lengths: Int64) -> Int64:
    """Return the numbers of all ranges, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Int64 = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return numbers


def _weights(ours: Int64, theirs: Int64, sentences: int) -> Float64:
    """Return the inverse sentence frequency of each entry of both texts."""
    codes = np.concatenate([ours[:, 0], theirs[:, 0]])
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    weights: Float64 = np.log((sentences + 1) / counts)[inverse]
    return weights


def _join(left: _Weighted, right: _Weighted, columns: int) -> tuple[Int64, Float64, Int64]:
    """Return the pairs of sentences that share words, as row * columns + column; cosine; how many.

    The most frequent words, which weigh least, are left out where there would be too many pairs.
    """
    first = np.searchsorted(right.codes, left.codes, side="left")
    counts = np.searchsorted(right.codes, left.codes, side="right") - first
    cheapest = np.argsort(counts, kind="stable")
    kept = np.sort(cheapest[np.cumsum(counts[cheapest]) <= _MOST_PAIRS])
    counts = counts[kept]
    entries = np.repeat(kept, counts)
    others = _ranges(first[kept], counts)
    keys = left.sentences[entries] * columns + right.sentences[others]
    products = left.weights[entries] * right.weights[others]
    pairs, inverse = _numbered(keys)
    shared = np.bincount(inverse).astype(np.int64, copy=False)
    return pairs, np.bincount(inverse, products).astype(np.float64, copy=False), shared


def _numbered(keys: Int64) -> tuple[Int64, Int64]:
    if len(keys) and int(keys.max()) < _MOST_CELLS:  # counting is many times faster than sorting
        present = np.zeros(int(keys.max()) + 1, dtype=bool)
        present[keys] = True
        return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]
    pairs, inverse = np.unique(keys, return_inverse=True)
    return pairs, inverse


def _best(group: Int64, values: Float64) -> Bool:
    """Return whether each value is the greatest of its group, the first of equal ones."""
    order = np.lexsort((-values, group))
    leading = np.ones(len(group), dtype=bool)
    leading[1:] = group[order][1:] != group[order][:-1]
    best = np.zeros(len(group), dtype=bool)
    best[order[leading]] = True
    return best


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
    Texts of block vectors [S, H] and [T, H] that are too short to measure it have that of `short`.
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

"""What one text has that another lacks, block by block. No text is encoded here."""

from collections.abc import Sequence

import numpy as np

from encoder.arrays import Bool
from encoder.comparison.matches import find_exact_matches
from encoder.comparison.result import AlignedPassage, Difference, DifferenceKind, Differences, Span
from encoder.comparison.text import ComparableText
from encoder.comparison.words import Words, word_range, words_in

_SHINGLE = 4  # consecutive equal words; shorter ones are equal by chance
_MISSING = 0.5  # share of the words of a block, from which all of it is missing


def find_differences(
    left: ComparableText, right: ComparableText, passages: Sequence[AlignedPassage]
) -> Differences:
    """Find the blocks of each of two texts that the other lacks, or has in other words.

    Args:
        left: one text.
        right: the other, of the same checkpoint.
        passages: that the two share.
    """
    matches = find_exact_matches(left.words, right.words, _SHINGLE)
    ours = [(match.left, match.left + match.length) for match in matches]
    theirs = [(match.right, match.right + match.length) for match in matches]
    shared = [passage for passage in passages if passage.kind != "similar"]
    return Differences(
        _lacking(left, right, ours, [passage.left for passage in shared]),
        _lacking(right, left, theirs, [passage.right for passage in shared]),
    )


def _lacking(
    read: ComparableText,
    other: ComparableText,
    equal: Sequence[tuple[int, int]],
    passages: Sequence[Span],
) -> tuple[Difference, ...]:
    """Return the blocks of a text that are not in the other, given the words that are."""
    same = words_in(read.words, equal)
    covered = same | words_in(
        read.words, [word_range(read.words, *passage) for passage in passages]
    )
    cosines = read.block_vectors @ other.block_vectors.T
    found = []
    for span, block in _parts(read):
        first, last = word_range(read.words, *span)
        if same[first:last].all():
            continue
        missing = float(np.mean(~covered[first:last])) > _MISSING
        nearest, similarity = None, None
        if block is not None:
            place = int(cosines[block].argmax())
            nearest = Span(*other.offsets[place].tolist())
            similarity = float(np.clip(cosines[block, place], -1.0, 1.0))
        words = _runs(read.words, same, first, last)
        kind: DifferenceKind = "missing" if missing else "changed"
        found.append(Difference(span, kind, words, nearest, similarity))
    return tuple(found)


def _parts(read: ComparableText) -> list[tuple[Span, int | None]]:
    """Return the blocks of a text with their numbers, and the sentences that are in no block."""
    parts: list[tuple[Span, int | None]] = []
    blocks = [word_range(read.words, *offsets) for offsets in read.offsets.tolist()]
    parts += [(Span(*place), number) for number, place in enumerate(read.offsets.tolist())]
    inside = words_in(read.words, blocks)
    starts, ends = read.words.starts, read.words.ends
    for first, last in zip(
        read.sentences.first.tolist(), read.sentences.last.tolist(), strict=True
    ):
        if first < last and not inside[first:last].any():
            parts.append((Span(int(starts[first]), int(ends[last - 1])), None))
    return sorted(parts, key=lambda part: part[0])


def _runs(words: Words, same: Bool, first: int, last: int) -> tuple[Span, ...]:
    """Return the characters of the runs of words in `first:last` that are not the same."""
    flags = np.concatenate([[True], same[first:last], [True]]).astype(np.int8)
    changes = np.flatnonzero(np.diff(flags)).tolist()
    return tuple(
        Span(int(words.starts[first + begin]), int(words.ends[first + end - 1]))
        for begin, end in zip(changes[::2], changes[1::2], strict=True)
    )

"""The words of a text with their positions, for word-level comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Int64
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

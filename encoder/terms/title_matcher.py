"""The titles that a text names: runs of its tokens that are, token for token, a known title.

Who writes "as in World War II" names the document of that title, and two texts that name the same
documents are near each other. A title is a term like a word; see
`encoder.terms.term_table.count_words`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Int64, UInt64

MAX_TITLE_TOKENS = 24  # a longer one is not named whole
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no token of a title is multiplied away
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64


@dataclass(frozen=True, slots=True)
class TitleMatcher:
    """The titles that are looked for.

    Attributes:
        hashes: UInt64[T] of their tokens, ascending.
        lengths: Int64[L], of how many tokens they are, ascending.
    """

    hashes: UInt64
    lengths: Int64

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, tokens: Int64) -> UInt64:
        """Return the hashes UInt64[F], ascending, of the titles that tokens Int64[T] name."""
        found, runs = [np.empty(0, np.uint64)], np.zeros(len(tokens) + 1, dtype=np.uint64)
        wanted = set(self.lengths.tolist())
        for length in range(1, min(max(wanted, default=0), len(tokens)) + 1):
            runs = _lengthen(runs[:-1], tokens[length - 1 :])
            if length in wanted:
                mixed = _mix(runs)
                places = np.minimum(np.searchsorted(self.hashes, mixed), len(self.hashes) - 1)
                found.append(mixed[self.hashes[places] == mixed])
        return np.unique(np.concatenate(found))

    def only(self, kept: Bool) -> "TitleMatcher":
        """Return the titles for which Bool[T] says so; all lengths stay."""
        return TitleMatcher(self.hashes[kept], self.lengths)


NO_TITLES = TitleMatcher(np.empty(0, np.uint64), np.empty(0, np.int64))


def title_table(titles: Iterable[Sequence[int]]) -> TitleMatcher:
    """Make the table of titles, given as token ids; empty and too long ones are left out."""
    hashes, lengths = set(), set()
    for title in titles:
        if 0 < len(title) <= MAX_TITLE_TOKENS:
            hashes.add(_hash(title))
            lengths.add(len(title))
    return TitleMatcher(
        np.array(sorted(hashes), dtype=np.uint64), np.array(sorted(lengths), dtype=np.int64)
    )


def _hash(title: Sequence[int]) -> int:
    run = np.zeros(1, dtype=np.uint64)
    for token in title:
        run = _lengthen(run, np.array([token], dtype=np.int64))
    return int(_mix(run)[0])


def _lengthen(runs: UInt64, tokens: Int64) -> UInt64:
    """Hash runs with one token more each; no token is -1, so that every length counts."""
    return runs * _BASE + (tokens.astype(np.uint64) + np.uint64(1))


def _mix(runs: UInt64) -> UInt64:
    mixed = (runs ^ (runs >> np.uint64(31))) * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(29))

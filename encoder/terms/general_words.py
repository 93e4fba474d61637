"""What is known of a word before a collection is read: in how many texts it is, in general.

`general_words.txt` has the share of Wikipedia's articles that use a word, as levels: a level is a
byte, and 32 levels are a factor of two. `python -m evaluation.fitting.general_words` writes it.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from encoder.arrays import Float32

WORDS = Path(__file__).with_name("general_words.txt")
UNLISTED, EVERYWHERE, PAIR = 0, 254, 255  # levels; 1 to 254 are shares
_A_FACTOR_OF_TWO = 32  # levels


def share_of(level: int) -> float:
    """Return the share of texts that a level from 1 to 254 stands for."""
    return float(2.0 ** ((level - EVERYWHERE) / _A_FACTOR_OF_TWO))


def level_of_share(share: float) -> int:
    """Return the level of a share above 0 and up to 1; `UNLISTED` where it is too small for one."""
    return max(UNLISTED, EVERYWHERE + round(_A_FACTOR_OF_TWO * float(np.log2(share))))


@cache
def word_levels() -> Mapping[str, int]:
    """Return the level of each listed word."""
    return dict(_read())


def _read() -> Iterator[tuple[str, int]]:
    for line in WORDS.read_text("utf-8").splitlines():
        level, *words = line.split()
        yield from ((word, int(level)) for word in words)


def shares() -> Float32:
    """Return the share Float32[256] of each level; 0 for words that are not listed, and pairs."""
    table = np.zeros(256, dtype=np.float32)
    table[1:PAIR] = [share_of(level) for level in range(1, PAIR)]
    return table

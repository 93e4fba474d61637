"""The words of a text with their positions, for word-level comparison."""

import re
import unicodedata
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64
from encoder.payload import blank_payload
from encoder.terms.segmentation import INVISIBLE

# In scripts without spaces, each character is a word. Words go on behind invisible characters and
# combining marks.
_JOINING = f"{INVISIBLE}\u0300-\u036f"
_LETTER = r"[^\W\u3040-\u30ff\u3400-\u9fff]"
_WORD = re.compile(
    rf"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|{_LETTER}(?:{_LETTER}|[{_JOINING}])*"
)
_DROPPED = dict.fromkeys(map(ord, INVISIBLE))


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one text, in order.

    Attributes:
        codes: Int64[W], equal for words that are equal except for case; valid in this process only.
        starts: Int64[W], the first character of each.
        ends: Int64[W], the character after each.
    """

    codes: Int64
    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.codes)


def locate_words(text: str) -> Words:
    """Find the words of a text: runs of letters and digits. Time is linear in its length."""
    readable, _ = blank_payload(text)
    found = [(hash(_fold(match[0])), *match.span()) for match in _WORD.finditer(readable)]
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Words(*(np.ascontiguousarray(table[:, column]) for column in range(3)))


def _fold(text: str) -> str:
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFC", text.translate(_DROPPED)).casefold()


def word_range(words: Words, start: int, end: int) -> tuple[int, int]:
    """Return the range of the words that lie within characters `start:end`."""
    first = int(np.searchsorted(words.starts, start, side="left"))
    last = int(np.searchsorted(words.ends, end, side="right"))
    return first, max(first, last)

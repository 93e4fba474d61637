"""The words of a text as the lexical index counts them."""

import re
import unicodedata
from collections import Counter

MAX_TERM_CHARACTERS = 64  # nothing longer is a word: encoded data, a path, a broken file

_WORD = re.compile(r"[^\W_]+")  # letters and digits of any script


def words_of(text: str) -> list[str]:
    """Return the words of a text in their order, in lower case and without diacritics.

    Numbers are words, since they are what vectors lose. Words are not stemmed and none is left
    out for being common: on validation stemming found less, and weights by document frequency
    did what a list of stop words does.
    """
    lowered = text.lower()
    if not lowered.isascii():
        decomposed = unicodedata.normalize("NFKD", lowered)
        lowered = "".join(c for c in decomposed if not unicodedata.combining(c))
    return [w for w in _WORD.findall(lowered) if len(w) <= MAX_TERM_CHARACTERS]


def count_terms(text: str) -> Counter[str]:
    """Count the words of a text."""
    return Counter(words_of(text))

"""The terms of a text as the lexical index counts them: words, pairs of words, and titles."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from encoder.arrays import UInt64
from encoder.terms.function_words import function_words
from encoder.terms.general_words import PAIR, UNLISTED, word_levels
from encoder.terms.segmentation import words_of
from encoder.terms.title_matcher import NO_TITLES, TitleMatcher, Titles, hash_titles
from index.common_text.runs import NO_COMMON_TEXT, CommonText

NAMED_TITLE_COUNT = 25
OWN_TITLE_COUNT = 36
MAX_TITLE_WORDS = 12
HEAD_WORDS = 3  # of a longer title
QUOTE = '"'  # no word has one
_SEAM = ""  # where common text was left out; a word of no title and of no pair


def title_words(title: str) -> list[str]:
    """Return the words of a title; none where it is too long to be named whole."""
    words = words_of(title)
    return words if len(words) <= MAX_TITLE_WORDS else []


def title_term(words: Sequence[str]) -> str:
    """Return the term of a title of at least one word."""
    return f"{QUOTE}{' '.join(words)}{QUOTE}"


def known_titles(titles: Iterable[str]) -> TitleMatcher:
    """Make ready the titles of a corpus, to be found in texts."""
    return TitleMatcher.of(hash_titles(hash_words(title_words(title)) for title in titles))


def title_hashes(title: str) -> tuple[int | None, int | None]:
    """Return the numbers by which a store finds a title in texts.

    Returns:
        The hash of its words, None where it has none or too many; and that of the first
        `HEAD_WORDS`, None where it has no more.
    """
    words = hash_words(title_words(title))
    if not len(words):
        return None, None
    whole, head = hash_titles([words, words[:HEAD_WORDS]]).tolist()
    return whole, head if len(words) > HEAD_WORDS else None


def count_terms_and_titles(
    text: str,
    titles: Titles = NO_TITLES,
    title: str = "",
    common: CommonText = NO_COMMON_TEXT,
) -> Counter[str]:
    """Count the words of a text, the pairs of them, and the titles that it names.

    Those of the common text of the collection do not count.
    """
    words = _distinctive_words(text, common)
    counted = _count(words)
    counted.update(_count_titles(words, titles, title))
    return counted


def count_titles(
    text: str, titles: Titles, title: str = "", common: CommonText = NO_COMMON_TEXT
) -> dict[str, int]:
    """Count the titles alone as `count_terms_and_titles` does, in a fraction of its time."""
    return _count_titles(_distinctive_words(text, common), titles, title)


def words_without_common(text: str, common: CommonText) -> list[str]:
    """Return the words of a text in their order, without those of common text."""
    return [word for word in _distinctive_words(text, common) if word != _SEAM]


def _distinctive_words(text: str, common: CommonText) -> list[str]:
    """Return the words of a text, with a seam instead of each stretch of common text."""
    words = words_of(text)
    found = common.find(hash_words(words)) if len(common) else None
    if found is None:
        return words
    first = found.copy()
    first[1:] &= ~found[:-1]
    return [
        _SEAM if is_first else word
        for word, is_common, is_first in zip(words, found.tolist(), first.tolist(), strict=True)
        if is_first or not is_common
    ]


def _count_titles(words: Sequence[str], titles: Titles, title: str) -> dict[str, int]:
    counted = dict.fromkeys(named_titles(words, titles), NAMED_TITLE_COUNT)
    if named_words := title_words(title):
        counted[title_term(named_words)] = OWN_TITLE_COUNT
    return counted


def named_titles(words: Sequence[str], titles: Titles) -> Iterator[str]:
    """Yield the term of each title that a text of these words names, once for each mention."""
    for length, starts, _ in titles.find(hash_words(words)):
        for start in starts.tolist():
            yield title_term(words[start : start + length])


def hash_words(words: Sequence[str]) -> UInt64:
    """Hash each word, the same in every process: UInt64[W]."""
    return np.fromiter(map(_hash_word, words), np.uint64, len(words))


@lru_cache(maxsize=1 << 16)
def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def is_pair(term: str) -> bool:
    """Return whether a term is a pair of words, not a word or a title."""
    return " " in term and term[0] != QUOTE


def level_of(term: str) -> int:
    """Return the general level of a term (`encoder.terms.general_words`)."""
    return PAIR if is_pair(term) else word_levels().get(term, UNLISTED)


def _count(words: Sequence[str]) -> Counter[str]:
    """Count words and pairs, two words that follow each other; function words are left out.

    On validation queries of two corpora, pairs of all counts found more than those of two or more
    occurrences, and more than the hundred highest-weighted of a document.
    """
    counted = Counter(words)
    del counted[_SEAM]
    left_out = function_words(counted)
    for word in left_out & counted.keys():
        del counted[word]
    left_out = left_out | {_SEAM}
    counted.update(
        f"{word} {other}"
        for word, other in pairwise(words)
        if word not in left_out and other not in left_out
    )
    return counted

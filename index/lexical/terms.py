"""The terms of a text as the lexical index counts them: words, pairs of words, and titles."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise, repeat

import numpy as np

from encoder.arrays import UInt64
from encoder.terms.function_words import function_words
from encoder.terms.general_words import PAIR, UNLISTED, word_levels
from encoder.terms.segmentation import find_words, split_words, without_diacritics
from encoder.terms.title_matcher import TitleMatcher, match_titles

NAMED_TITLE_COUNT = 25
OWN_TITLE_COUNT = 36
MAX_TITLE_WORDS = 12
QUOTE = '"'  # no word has one


def title_words(title: str) -> list[str]:
    """Return the words of a title; none where it is too long to be named whole."""
    words = words_of(title)
    return words if len(words) <= MAX_TITLE_WORDS else []


def title_term(words: Sequence[str]) -> str:
    """Return the term of a title of at least one word."""
    return f"{QUOTE}{' '.join(words)}{QUOTE}"


def known_titles(titles: Iterable[str]) -> TitleMatcher:
    """Make ready the titles of a corpus, to be found in texts."""
    return match_titles(hash_words(title_words(title)) for title in titles)


def with_titles(known: TitleMatcher, titles: Iterable[str]) -> TitleMatcher:
    """Return titles and more of them, without reading those that are known again."""
    return known.joined(known_titles(titles))


def count_terms_and_titles(text: str, titles: TitleMatcher, title: str = "") -> Counter[str]:
    """Count the words of a text, the pairs of them, and the titles that it names."""
    words = words_of(text)
    counted = _count(words)
    counted.update(_count_titles(words, titles, title))
    return counted


def count_titles(text: str, titles: TitleMatcher, title: str = "") -> dict[str, int]:
    """Count the titles alone as `count_terms_and_titles` does, in a fraction of its time."""
    return _count_titles(words_of(text), titles, title)


def _count_titles(words: Sequence[str], titles: TitleMatcher, title: str) -> dict[str, int]:
    counted = dict.fromkeys(named_titles(words, titles), NAMED_TITLE_COUNT)
    if named_words := title_words(title):
        counted[title_term(named_words)] = OWN_TITLE_COUNT
    return counted


def count_corpus(
    texts: Iterable[str], titles: Sequence[str], documents: int | None = None
) -> Iterator[Counter[str]]:
    """Count the terms of the texts of a whole corpus.

    Args:
        texts: of the documents, then of queries that are none.
        titles: of the documents and queries; without any, words and pairs alone are counted.
        documents: how many of the texts are documents; all when not given.
    """
    known = known_titles(titles[:documents])
    for text, title in zip(texts, chain(titles, repeat("")), strict=False):
        yield count_terms_and_titles(text, known, title)


def named_titles(words: Sequence[str], titles: TitleMatcher) -> Iterator[str]:
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


MAX_TERM_CHARACTERS = 64  # nothing longer is a word: encoded data, a path, a broken file

_ASCII_OR_ONE = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]")


def words_of(text: str) -> list[str]:
    """Return the words of a text in their order, in lower case and without diacritics.

    Scripts without spaces are segmented (`encoder.terms.segmentation`).
    Numbers are words, since they are what vectors lose. Words are not stemmed: on validation
    stemming found less.
    """
    plain = without_diacritics(text.lower())
    return [word for word in split_words(plain) if len(word) <= MAX_TERM_CHARACTERS]


def word_spans(text: str) -> list[tuple[str, int, int]]:
    """Return the words as `words_of` does, each with its place in the text.

    Returns:
        For each word: it, its first character, and the character after its last.
    """
    lowered = text.lower()  # as a whole: the form of a sigma depends on what follows
    letters: list[str] = []
    places: list[int] = []  # of each letter in the text
    done = 0  # characters of the lowered text
    for part in _ASCII_OR_ONE.finditer(text):
        begin, end = part.span()
        size = len(part[0].lower())  # two for "İ"
        plain = without_diacritics(lowered[done : done + size])
        letters.append(plain)
        places += range(begin, end) if part[0].isascii() else [begin] * len(plain)
        done += size
    places.append(len(text))
    plain = "".join(letters)
    return [
        # A diacritic behind the last letter belongs to the word.
        (plain[begin:end], places[begin], max(places[end - 1] + 1, places[end]))
        for begin, end in find_words(plain)
        if end - begin <= MAX_TERM_CHARACTERS
    ]


def count_terms(text: str) -> Counter[str]:
    """Count the words of a text, and the pairs of neighbouring words."""
    return _count(words_of(text))


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
    left_out = function_words(counted)
    for word in left_out & counted.keys():
        del counted[word]
    counted.update(
        f"{word} {other}"
        for word, other in pairwise(words)
        if word not in left_out and other not in left_out
    )
    return counted

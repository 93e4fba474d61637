"""Function words: articles, pronouns, particles and the like, which tell nothing of a matter.

English has a list of its own here, since that of the library has 1,333 words, such as "system",
and Chinese one of both scripts; the library `stop-words` has those of other languages. Many of
their words are words of content in another language, such as German "die" and "war". So a text
is read without the function words of English, whose words all languages borrow, and those of the
one other language that it seems to be in.
"""

from collections.abc import Collection
from functools import cache
from math import log
from pathlib import Path
from typing import NamedTuple

from encoder.terms.general_words import share_of, word_levels
from encoder.terms.segmentation import without_diacritics

_USUAL_SHARE = 0.3  # of the texts of a language that use one of its function words
_EVIDENCE = 5.0  # so that no single word decides

ENGLISH = frozenset(Path(__file__).with_name("stop_words.txt").read_text("utf-8").split())
_CHINESE = frozenset(Path(__file__).with_name("stop_words_zh.txt").read_text("utf-8").split())


class _Lists(NamedTuple):
    """Function words of all languages.

    Attributes:
        evidence: for each word, the languages that have it, and how much it speaks for them
            against English: log(share of their texts / share of English texts), or 1 where English
            has it, too.
        with_english: of each language, together with those of English.
    """

    evidence: dict[str, tuple[list[str], float]]
    with_english: dict[str, frozenset[str]]


def function_words(words: Collection[str]) -> frozenset[str]:
    """Return the function words of the languages of a text, given its different words.

    The words are as `words_of` returns them. Another language than English is
    found where its function words are more evidence than those of English that it does not have.
    """
    lists, english = _lists(), 0
    found: dict[str, float] = {}
    for word in words:
        if (entry := lists.evidence.get(word)) is not None:
            english += word in ENGLISH
            for language in entry[0]:
                found[language] = found.get(language, 0.0) + entry[1]
    best = max(found, key=found.__getitem__, default="")
    return lists.with_english[best] if found.get(best, 0.0) - english > _EVIDENCE else ENGLISH


@cache
def _lists() -> _Lists:
    # Imported here: it reads files, and most programs need none of them.
    from stop_words import AVAILABLE_LANGUAGES, get_stop_words

    lists = {language: _read(get_stop_words(language)) for language in AVAILABLE_LANGUAGES}
    lists |= {"english": ENGLISH, "chinese": _CHINESE}
    levels, evidence = word_levels(), dict[str, tuple[list[str], float]]()
    for language, words in lists.items():
        for word in words:
            share = share_of(levels.get(word, 1))
            speaks = 1.0 if word in ENGLISH else log(_USUAL_SHARE / share)
            languages, _ = evidence.setdefault(word, ([], speaks))
            if language != "english":
                languages.append(language)
    return _Lists(evidence, {name: words | ENGLISH for name, words in lists.items()})


def _read(entries: Collection[str]) -> frozenset[str]:
    """Return the words of entries without a space, as words of a text."""
    plain = (without_diacritics(entry.lower()) for entry in entries if " " not in entry)
    return frozenset(word for entry in plain for word in entry.replace("'", " ").split())

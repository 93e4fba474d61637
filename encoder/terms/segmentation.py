"""The words of a text in scripts with and without spaces between words.

Letters and digits that follow one another are a word. Scripts whose words do that and which need
more are segmented: Chinese by jieba's dictionary (rjieba), Japanese also where its scripts change,
Thai, Lao, Khmer and Burmese by the dictionaries of ICU (icu4py). Vowel signs belong to the word of
their consonant, as in Hindi.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache

from encoder.payload import blank_payload

_WORD = re.compile(r"[^\W_]+")  # letters and digits of any script

_SOUTH_EAST_ASIAN = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
_OF_SOUTH_EAST_ASIA = re.compile(f"[{_SOUTH_EAST_ASIAN}]")
_BY_REGION = re.compile(f"[{_SOUTH_EAST_ASIAN}]+|[^{_SOUTH_EAST_ASIAN}]+")

# Signs that no letter is without, and which are neither letters nor diacritics for Python; those of
# South-East Asia are never removed.
_SCRIPTS_WITH_SIGNS = (*range(0x0900, 0x1AB0), *range(0xA9E0, 0xAA00), *range(0xAA60, 0xAA80))
_SIGNS = "".join(
    sign
    for sign in map(chr, _SCRIPTS_WITH_SIGNS)
    if unicodedata.category(sign) in ("Mc", "Mn")
    and (not unicodedata.combining(sign) or _OF_SOUTH_EAST_ASIA.match(sign))
)
_WORD_WITH_SIGNS = re.compile(rf"[^\W_](?:[^\W_]|[{_SIGNS}])*")

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA = "\u3041-\u309f"
_KATAKANA = "\u30a1-\u30ff\u31f0-\u31ff"  # with the mark of a long vowel
_WITHOUT_SPACES = f"{_HAN}{_HIRAGANA}{_KATAKANA}{_SOUTH_EAST_ASIAN}"
_UNSPACED = re.compile(f"[{_WITHOUT_SPACES}]")
_SPECIAL = re.compile(f"[{_SIGNS}{_WITHOUT_SPACES}]")
_RUN = re.compile(  # a sign of one script behind a letter of another is no word
    rf"(?=[^\W_])(?:(?P<han>[{_HAN}]+)|(?P<asian>[{_SOUTH_EAST_ASIAN}]+)"
    f"|[{_HIRAGANA}]+|[{_KATAKANA}]+|[^{_WITHOUT_SPACES}]+)"
)


# They say where a word may be broken, or where not: a word goes on behind them. The joiners of
# Persian and of the scripts of India are letters.
INVISIBLE = "\u00ad\u200b\u2060\ufeff"


def without_diacritics(lowered: str) -> str:
    """Return a text in lower case without diacritics and invisible characters.

    Thai, Lao, Khmer and Burmese stay as they are: their marks of tone are no less than letters,
    and dictionaries have them.
    """
    if lowered.isascii():
        return lowered
    if not _OF_SOUTH_EAST_ASIA.search(lowered):
        return _strip(lowered)
    return "".join(
        run if _OF_SOUTH_EAST_ASIA.match(run) else _strip(run)
        for run in _BY_REGION.findall(lowered)
    )


def _strip(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    for character in set(decomposed):  # few of them are left out, and each of many
        if unicodedata.combining(character) or character in INVISIBLE:
            decomposed = decomposed.replace(character, "")
    return decomposed


MAX_WORD_CHARACTERS = 64  # nothing longer is a word: encoded data, a path, a broken file

_ASCII_OR_NOT = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")
_plain = lru_cache(maxsize=1 << 14)(without_diacritics)


def words_of(text: str) -> list[str]:
    """Return the words of a text in their order, in lower case and without diacritics.

    Numbers are words, since they are what vectors lose. Words are not stemmed: on validation
    stemming found less.
    """
    plain = without_diacritics(blank_payload(text)[0].lower())
    if plain.isascii() or not _SPECIAL.search(plain):
        words = _WORD.findall(plain)
    else:
        words = [plain[begin:end] for begin, end in _find_words(plain)]
    return [word for word in words if len(word) <= MAX_WORD_CHARACTERS]


def word_spans(text: str) -> list[tuple[str, int, int]]:
    """Return the words as `words_of` does, each with its place in the text.

    Returns:
        For each word: it, its first character, and the character after its last.
    """
    # All but "İ" are of one character in lower case; as a whole: a sigma depends on what follows.
    lowered = blank_payload(text)[0].replace("İ", "i").lower()
    if lowered.isascii():
        found = ((word[0], *word.span()) for word in _WORD.finditer(lowered))
        return [span for span in found if len(span[0]) <= MAX_WORD_CHARACTERS]
    letters: list[str] = []
    places: list[int] = []  # of each letter in the text
    for part in _ASCII_OR_NOT.finditer(lowered):
        if part[0].isascii():
            letters.append(part[0])
            places += range(*part.span())
            continue
        for place, character in enumerate(part[0], part.start()):
            plain = _plain(character)
            letters.append(plain)
            places += [place] * len(plain)
    places.append(len(text))
    plain = "".join(letters)
    return [
        # A diacritic behind the last letter belongs to the word.
        (plain[begin:end], places[begin], max(places[end - 1] + 1, places[end]))
        for begin, end in _find_words(plain)
        if end - begin <= MAX_WORD_CHARACTERS
    ]


def _find_words(plain: str) -> Iterator[tuple[int, int]]:
    """Yield the (begin, end) characters of each word."""
    special = not plain.isascii() and _SPECIAL.search(plain) is not None
    for word in (_WORD_WITH_SIGNS if special else _WORD).finditer(plain):
        if special and _UNSPACED.search(word[0]):
            yield from _segment(word[0], word.start())
        else:
            yield word.span()


def separate_words(text: str) -> str:
    """Return a text with spaces around the words of scripts without spaces, else as it is.

    For libraries that find words by letters and digits that follow one another.
    """
    if text.isascii() or not _UNSPACED.search(text):
        return text
    pieces, done = [], 0
    for begin, end in _find_words(text):
        pieces += [text[done:begin], text[begin:end]]
        done = end
    return " ".join([*pieces, text[done:]])


def _segment(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the words of a run of letters, some of them of a script without spaces."""
    for run in _RUN.finditer(text):
        place = begin + run.start()
        for word in _words_of_run(run):
            yield place, place + len(word)
            place += len(word)


def _words_of_run(run: re.Match[str]) -> Iterable[str]:
    if run["han"]:
        return _chinese()(run[0])
    if run["asian"]:
        return _breaker()(run[0], "th")  # the dictionary is that of the script
    return (run[0],)


@cache
def _breaker() -> Callable[[str, str], Iterable[str]]:
    # Imported here: its data takes memory, and most texts do without.
    from icu4py.breakers import WordBreaker

    return WordBreaker


@cache
def _chinese() -> Callable[[str], list[str]]:
    # Imported here: its dictionary takes memory and a moment, and most texts do without.
    import rjieba

    segment: Callable[[str], list[str]] = rjieba.cut
    return segment

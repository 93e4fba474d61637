"""The words of a text in scripts with and without spaces between words.

Letters and digits that follow one another are a word. Scripts whose words do that and which need
more are segmented: Chinese by jieba's dictionary (rjieba), Japanese also where its scripts change,
Thai, Lao, Khmer and Burmese by the dictionaries of ICU (icu4py). Vowel signs belong to the word of
their consonant, as in Hindi.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

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

    For `split_words` and `find_words`.

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
    return "".join(
        character
        for character in decomposed
        if not unicodedata.combining(character) and character not in INVISIBLE
    )


def split_words(plain: str) -> list[str]:
    """Return the words of a text in their order, as they are written; see `without_diacritics`."""
    if plain.isascii() or not _SPECIAL.search(plain):
        return _WORD.findall(plain)
    return [plain[begin:end] for begin, end in find_words(plain)]


def find_words(plain: str) -> Iterator[tuple[int, int]]:
    """Yield the (begin, end) characters of each word, as `split_words` returns them."""
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
    for begin, end in find_words(text):
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


def _read(name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(name).read_text("utf-8").split())


STOP_WORDS = _read("stop_words.txt")
CHINESE_STOP_WORDS = _read("stop_words_zh.txt")  # particles and the like, in both scripts

"""The words of a text in scripts with and without spaces between words.

Letters and digits that follow one another are a word. Scripts whose words do that and which need
more are segmented: Chinese by jieba's dictionary (rjieba), Japanese also where its scripts change.
Vowel signs belong to the word of their consonant, as in Hindi. The words of Thai, Lao, Khmer and
Burmese are not found: what is between two spaces is one word.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

_WORD = re.compile(r"[^\W_]+")  # letters and digits of any script

# Signs that no letter is without, and which are neither letters nor diacritics for Python.
_SCRIPTS_WITH_SIGNS = range(0x0900, 0x1AB0)
_SIGNS = "".join(
    chr(code)
    for code in _SCRIPTS_WITH_SIGNS
    if unicodedata.category(chr(code)) in ("Mc", "Mn") and not unicodedata.combining(chr(code))
)
_WORD_WITH_SIGNS = re.compile(rf"[^\W_](?:[^\W_]|[{_SIGNS}])*")

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA = "\u3041-\u309f"
_KATAKANA = "\u30a1-\u30ff\u31f0-\u31ff"  # with the mark of a long vowel
_UNSPACED = re.compile(f"[{_HAN}{_HIRAGANA}{_KATAKANA}]")
_SPECIAL = re.compile(f"[{_SIGNS}{_HAN}{_HIRAGANA}{_KATAKANA}]")
_RUN = re.compile(
    f"(?P<han>[{_HAN}]+)|[{_HIRAGANA}]+|[{_KATAKANA}]+|[^{_HAN}{_HIRAGANA}{_KATAKANA}]+"
)


def split_words(plain: str) -> list[str]:
    """Return the words of a text in their order, as they are written.

    Args:
        plain: a text; diacritics, if they are to be ignored, are removed before.
    """
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
        for word in _chinese()(run[0]) if run["han"] else [run[0]]:
            yield place, place + len(word)
            place += len(word)


@cache
def _chinese() -> Callable[[str], list[str]]:
    # Imported here: its dictionary takes memory and a moment, and most texts do without.
    import rjieba

    segment: Callable[[str], list[str]] = rjieba.cut
    return segment

"""Data inside a text that nobody reads: data URIs, runs of base64 and hexadecimal, minified code.

`blank_payload` replaces it by spaces, so that positions stay those of the text. The tokenizer, the
words of search and those of a comparison read what it returns.

The limits are beyond what prose, identifiers and tables reach: a SHA-512 has 128 digits and the
longest German words some 80 letters; a run of base64 has letters of both cases and digits. Scripts
without spaces, sequences of DNA and tables of numbers are none of these.
"""

import re
from collections.abc import Callable

_SHORTEST = 60  # characters without white space that all payload but code has
_LEAST_DIFFERENT = 8  # digits of a hexadecimal run: "aaaa" is none
_MOST_SPACES = 0.04  # of minified code; of prose and of code that people write, more
_LEAST_SIGNS = 0.04  # of minified code are brackets, semicolons and equality signs; of tables, none
_MOST_SLASHES = 0.08  # of base64; of a path, more
_LEAST_OF_A_KIND = 0.04  # of base64 are digits, capital and small letters each

_DATA_URI = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*,[^\s\"'()<>]{64,}", re.IGNORECASE)
_WRAPPED = re.compile(  # the last line may be short, but no word of the text behind it
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,}\r?\n[ \t>]*){2,}"
    r"(?:(?=[A-Za-z]*[0-9+/=])[A-Za-z0-9+/]+={0,2}(?=[^\w+/= ]|\Z))?"
)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{100,}={0,2}")
_HEXADECIMAL = re.compile(
    r"(?<![0-9A-Za-z])(?:0x)?(?=[0-9]*[a-fA-F])[0-9a-fA-F]{129,}(?![0-9A-Za-z])"
)
_LONG_LINE = re.compile(r"^[^\n]{500,}", re.MULTILINE)
_SIGN = re.compile(r"[{}()\[\];=]")
_ANY_RUN = re.compile(rf"[!-~]{{{_SHORTEST}}}")


def blank_payload(text: str) -> tuple[str, int]:
    """Replace data that nobody reads by spaces.

    Returns:
        A text of the same length, and how many characters were replaced.
    """
    kinds: list[_Kind] = [(_LONG_LINE, _is_minified)]
    if _ANY_RUN.search(text):
        kinds = [*_RUNS, *kinds]
    left_out = 0
    for pattern, is_payload in kinds:
        pieces, done = [], 0
        for found in pattern.finditer(text):
            if is_payload(run := found[0]):
                pieces += [text[done : found.start()], " " * len(run)]
                done = found.end()
                left_out += len(run) - run.count(" ")
        if done:
            text = "".join([*pieces, text[done:]])
    return text, left_out


def _is_base64(run: str) -> bool:
    kinds = (str.isdigit, str.isupper, str.islower)
    least = min(sum(map(is_kind, run)) for is_kind in kinds)
    return least >= _LEAST_OF_A_KIND * len(run) and run.count("/") <= _MOST_SLASHES * len(run)


def _is_varied(run: str) -> bool:
    return len(set(run.lower())) >= _LEAST_DIFFERENT


def _is_minified(line: str) -> bool:
    return (
        line.count(" ") <= _MOST_SPACES * len(line)
        and line.isascii()
        and len(_SIGN.findall(line)) >= _LEAST_SIGNS * len(line)
    )


_Kind = tuple[re.Pattern[str], Callable[[str], object]]
_RUNS: tuple[_Kind, ...] = (
    (_DATA_URI, len),
    (_WRAPPED, _is_base64),
    (_RUN, _is_base64),
    (_HEXADECIMAL, _is_varied),
)

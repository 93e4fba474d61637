"""Sentence boundaries, by sentencex, with character offsets into the original text."""

import re
from collections.abc import Iterator

import sentencex

# sentencex never splits inside a pair of quotation marks, so a stray mark in a text without line
# breaks would take in all the rest; a window bounds the damage, and the time.
WINDOW_CHARACTERS = 4_000

_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*\n\s*")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def split_sentences(text: str, language: str = "en") -> Iterator[tuple[int, int]]:
    """Yield the (start, end) characters of each sentence of `text`, in order.

    The spans cover every character that is not white space around a sentence. Time is linear in
    the length of the text, with or without punctuation.

    Args:
        text: any text; lone surrogates count as one unreadable character each.
        language: ISO 639-1 code; an unknown one falls back to general rules.
    """
    readable = replace_lone_surrogates(text)  # the splitter takes UTF-8 only
    for start, end in _paragraphs(readable):
        yield from _split_paragraph(readable, start, end, language)


def replace_lone_surrogates(text: str) -> str:
    """Return `text` with every lone surrogate, which UTF-8 cannot hold, replaced by U+FFFD."""
    try:
        text.encode()  # far faster than to look for one, and mostly there is none
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _PARAGRAPH_BREAK.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _split_paragraph(text: str, start: int, end: int, language: str) -> Iterator[tuple[int, int]]:
    while start < end:
        stop = _window_end(text, start, end)
        boundaries = sentencex.get_sentence_boundaries(language, text[start:stop])
        if stop < end and len(boundaries) > 1:
            boundaries.pop()  # cut by the window: it opens the next one
        for boundary in boundaries:
            span = _strip(text, start + boundary["start_index"], start + boundary["end_index"])
            if span[0] < span[1]:
                yield span
        start += boundaries[-1]["end_index"] if boundaries else stop - start


def _window_end(text: str, start: int, end: int) -> int:
    if end - start <= WINDOW_CHARACTERS:
        return end
    stop = start + WINDOW_CHARACTERS
    space = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop))
    return space if space > start else stop


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    sentence = text[start:end]
    leading = len(sentence) - len(sentence.lstrip())
    return start + leading, start + max(leading, len(sentence.rstrip()))

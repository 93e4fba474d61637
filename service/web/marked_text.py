"""A text as HTML with its passages marked, even where they overlap."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from markupsafe import Markup, escape

from encoder.comparison.result import PassageKind, Section, Span

# Control characters except tab and line ends; directional embeddings, overrides and isolates; the
# zero-width no-break space; lone surrogates (UTF-8 has none); noncharacters. The marks U+200E and
# U+200F and the joiners stay as they are: honest texts need them, and they reorder nothing.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u206f\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_CONTROL_PICTURES = 0x2400
_DELETE = "\x7f"
_DELETE_PICTURE = "\u2421"


def visible(text: str) -> str:
    """Return a text with invisible or misleading characters made visible.

    A control character becomes its control picture, U+0000 for example U+2400; any other becomes
    its code, as "[U+202E]". The result can be encoded as UTF-8. Markup is unchanged: it is escaped
    when it is put into a page.
    """
    return _UNSAFE.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    character = found[0]
    if character == _DELETE:
        return _DELETE_PICTURE
    if character < " ":
        return chr(_CONTROL_PICTURES + ord(character))
    return f"[U+{ord(character):04X}]"


_BLANK_LINES = re.compile(r"(\n[^\S\n]*\n\s*)")
_NEW_LINE = re.compile(r"[\s>|#*+•–-]|\d+[.)]")  # begins what stands on a line of its own
_SHORTEST_WRAPPED = 40  # characters
_FILLED = 0.85  # of the longest line; those of a proportional font differ in their characters


def join_lines(text: str) -> str:
    """Return a text of the same length whose wrapped lines are joined to paragraphs.

    A line was wrapped if the first word of the next would not have fitted on it, by the longest
    line of its paragraph.
    """
    parts = _BLANK_LINES.split(text)
    parts[::2] = map(_join_paragraph, parts[::2])
    return "".join(parts)


def _join_paragraph(paragraph: str) -> str:
    lines = paragraph.split("\n")
    width = max(map(len, lines))
    joined = [lines[0]]
    for line, following in pairwise(lines):
        needed = len(line) + 1 + len(following.partition(" ")[0])
        wrapped = len(line) >= _SHORTEST_WRAPPED and needed > _FILLED * width
        apart = line.endswith("\r") or _NEW_LINE.match(following)
        joined += [" " if wrapped and not apart else "\n", following]
    return "".join(joined)


Side = Literal["left", "right"]
# Names of classes and ids are short because a page has thousands of them. The strongest kind is
# first.
KIND_CLASSES: Mapping[PassageKind, str] = {"verbatim": "v", "paraphrase": "p", "similar": "s"}
SHARED = " o"

_NUMBER = Markup('<a class="n {}" id={}{} href="#{}{}">{}</a>')
_HEAD = Markup("<a class=h id={}s{}>§{}</a>")
_MARK = Markup('<mark class="{}">{}</mark>')


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text as HTML.

    Attributes:
        html: the text, split wherever a passage or a section begins or ends. The text of passages
            is in consecutive <mark> elements, never nested. The number of a passage comes before
            it and links to the same number in the other text.
        ranges: the first and the last mark of each passage, counted from 0; (n, n - 1) if it has
            none. All marks between them belong to it, and perhaps to others, too.
    """

    html: Markup
    ranges: tuple[tuple[int, int], ...]


def mark_text(
    text: str, side: Side, passages: Sequence[tuple[Span, PassageKind]], sections: Sequence[Section]
) -> MarkedText:
    """Return a text with its passages and the beginnings of its sections marked.

    Spans that extend beyond the text are clipped to it. The time is linear in the text, the
    passages and the sections, even if all passages overlap.
    """
    here_name, there_name = ("l", "r") if side == "left" else ("r", "l")
    spans = [clip(span, len(text)) for span, _ in passages]
    begins, ends = _by_position(s.start for s in spans), _by_position(s.end for s in spans)
    heads = _by_position(clip(section.span, len(text)).start for section in sections)
    parts: list[Markup] = []
    ranges = [(0, -1)] * len(spans)
    open_kinds = Counter[PassageKind]()  # of the passages that have begun and not ended
    marks = 0
    for here, there in pairwise([*sorted({0, *begins, *ends, *heads}), len(text)]):
        for n in ends[here]:
            if spans[n].start < here:
                ranges[n] = (ranges[n][0], marks - 1)
                open_kinds[passages[n][1]] -= 1
        parts += [_HEAD.format(here_name, n + 1, n + 1) for n in heads[here]]
        for n in begins[here]:
            kind, shown = passages[n][1], n + 1
            name = KIND_CLASSES[kind]
            parts.append(_NUMBER.format(name, here_name, shown, there_name, shown, shown))
            ranges[n] = (marks, marks - 1)
            open_kinds[kind] += spans[n].end > here
        piece = _piece(text, here, there)
        names = [name for kind, name in KIND_CLASSES.items() if open_kinds[kind]]
        if names and piece:
            shared = SHARED if open_kinds.total() > 1 else ""
            parts.append(_MARK.format(names[0] + shared, piece))
            marks += 1
        else:
            parts.append(escape(piece))
    return MarkedText(Markup("").join(parts), tuple(ranges))


def clip(span: Span, length: int) -> Span:
    """Return the part of a span that lies within a text of `length` characters."""
    start = min(max(span.start, 0), length)
    return Span(start, min(max(span.end, start), length))


def _by_position(positions: Iterable[int]) -> defaultdict[int, list[int]]:
    """Return the indices of the items at each position, in their order."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for number, position in enumerate(positions):
        found[position].append(number)
    return found


def _piece(text: str, start: int, end: int) -> str:
    """Return a part of a text as it is shown.

    A carriage return whose line feed is in the next part is dropped: a browser would show two line
    ends.
    """
    return visible(text[start : end - 1 if text[end - 1 : end + 1] == "\r\n" else end])

"""The sections of a text: by its headings, or equal parts (CoLDE, section 3.1), and their vectors.

A section is made of the sentence blocks that begin in it, as in training. The attention between two
texts is what a model with vectors of sections learned between a section and the next (CoLDE,
section 4.3): here the other text is the next.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.comparison.result import AttendedBlockPair, Section, Span

MAX_TITLE_CHARACTERS = 200
MAX_HEADINGS = 20_000  # of one kind; a bound for hostile texts, which no book reaches

_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]+(\S.*)$", re.MULTILINE)
_UNDERLINED = re.compile(
    r"^[ \t]*(\S.*)\n([=\-~^\"'`*+#._:])\2{2,}[ \t\r]*$",
    re.MULTILINE,
)
_NUMBERED = re.compile(
    r"^ {0,3}(\d{1,3}(?:\.\d{1,3}){0,5}\.?|[A-Z](?:\.\d{1,3}){1,5}\.?|[A-Z]\.|[IVXLC]{1,7}\.)"
    r"[ \t]+(\S.{0,118})$",
    re.MULTILINE,
)
_NAMED_PART = re.compile(
    r"^ {0,3}(?:chapter|section|part|article|appendix|annex) (?:\d{1,4}|[ivxlc]{1,7}|[a-z])\b"
    r".{0,118}$",
    re.MULTILINE | re.IGNORECASE,
)
_HTML_TAG = re.compile(r"<(/?)h([1-6])\b[^<>]*>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[^<>]*>")
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)


class Heading(NamedTuple):
    """A heading; `level` 1 is the topmost, `start` the character where its line begins."""

    start: int
    level: int
    title: str
    end: int


def find_headings(text: str) -> list[Heading]:
    """Return the headings of a text in order; those of markup, or else those with numbers.

    Numbered headings are used only if a text has fewer than two headings of markup, because in
    marked-up text numbers often begin list items.
    """
    fences = [match.start() for match in _FENCE.finditer(text)]
    kinds = (_atx(text, fences), _underlined(text, fences), _html(text))
    marked = _ordered(heading for kind in kinds for heading in islice(kind, MAX_HEADINGS))
    if len(marked) > 1:
        return marked
    return _with_body(text, _ordered(islice(_numbered(text), MAX_HEADINGS)))


def _ordered(headings: Iterable[Heading]) -> list[Heading]:
    """Sort headings; a line that matches two kinds counts once."""
    return sorted({heading.start: heading for heading in headings}.values())


def _atx(text: str, fences: list[int]) -> Iterator[Heading]:
    for match in _ATX.finditer(text):
        if not _in_fence(match.start(), fences):
            title = _title(match[2].rstrip().rstrip("#"))
            yield Heading(match.start(), len(match[1]), title, match.end())


def _underlined(text: str, fences: list[int]) -> Iterator[Heading]:
    """Yield headings over a line of punctuation; the kinds of line rank as they first appear."""
    levels: dict[str, int] = {}
    for match in _UNDERLINED.finditer(text):
        start, before = match.start(), _line_before(text, match.start()).strip()
        mark = match[2]
        if not set(match[1].strip()) - {mark} or _in_fence(start, fences):
            continue
        if before and set(before) != {mark}:
            continue  # the last line of a paragraph, or the head of a table
        if before:
            start = _line_start_before(text, start)
        level = levels.setdefault(mark + before[:1], len(levels) + 1)
        yield Heading(start, level, _title(match[1]), match.end())


def _numbered(text: str) -> Iterator[Heading]:
    for match in _NUMBERED.finditer(text):
        number, title = match[1], match[2].rstrip()
        if _is_title(title) and _stands_alone(text, match.start(), match.end()):
            level = number.rstrip(".").count(".") + 1
            yield Heading(match.start(), level, _title(f"{number} {title}"), match.end())
    for match in _NAMED_PART.finditer(text):
        if not match[0].rstrip().endswith((".", ";", ",")) and _stands_alone(
            text, match.start(), match.end()
        ):
            yield Heading(match.start(), 1, _title(match[0]), match.end())


def _html(text: str) -> Iterator[Heading]:
    opened: re.Match[str] | None = None
    for tag in _HTML_TAG.finditer(text):
        if not tag[1]:
            opened = tag
        elif opened is not None and opened[2] == tag[2]:
            # Markup inside a heading can be longer than its text, but is bounded.
            inner = text[opened.end() : min(tag.start(), opened.end() + 10 * MAX_TITLE_CHARACTERS)]
            title = _title(_ANY_TAG.sub(" ", inner))
            yield Heading(opened.start(), int(tag[2]), title, tag.end())
            opened = None


def _with_body(text: str, headings: list[Heading]) -> list[Heading]:
    """Leave out numbered lines without a body: items of a list, not headings."""
    kept = []
    for number, heading in enumerate(headings):
        following = headings[number + 1] if number + 1 < len(headings) else None
        end = len(text) if following is None else following.start
        deeper = following is not None and following.level > heading.level
        if deeper or not _is_blank(text, heading.end, end):
            kept.append(heading)
    return kept


def _in_fence(position: int, fences: list[int]) -> bool:
    return bisect_right(fences, position) % 2 == 1


def _is_title(title: str) -> bool:
    return title[0].isalpha() and not title[0].islower() and title[-1] not in ".;,:"


def _stands_alone(text: str, start: int, end: int) -> bool:
    if _line_before(text, start).strip():
        return False
    following = text.find("\n", end + 1)
    return _is_blank(text, end, len(text) if following < 0 else following)


def _line_start_before(text: str, start: int) -> int:
    return text.rfind("\n", 0, max(0, start - 1)) + 1


def _line_before(text: str, start: int) -> str:
    return text[_line_start_before(text, start) : start] if start else ""


def _is_blank(text: str, start: int, end: int) -> bool:
    part = text[start:end]
    return not part or part.isspace()


def _title(text: str) -> str:
    return " ".join(text[: 2 * MAX_TITLE_CHARACTERS].split())[:MAX_TITLE_CHARACTERS]


MAX_SECTIONS = 64  # a larger matrix of section scores is of no use

_WINDOW_CHARACTERS = 2_000  # how far from its place a cut may move
_CUTS = (
    re.compile(r"\n[^\S\n]*\n"),  # between paragraphs
    re.compile(r"[.!?…][\"')\]”’»]?\s|[。！？]"),  # between sentences
    re.compile(r"\n"),
)
_SPACE = re.compile(r"\s")


def find_sections(text: str, parts: int = 2) -> tuple[Section, ...]:
    """Cut a text into sections.

    Sections begin at the headings of the topmost level that has at least two of them, and of the
    levels above it; what stands before the first is a section without a title. A text without such
    headings is cut into equal parts, at the paragraph or sentence boundary nearest to each cut.
    Time is linear in the length of the text.

    Args:
        text: any text, also an empty one.
        parts: how many equal parts, at most: a sentence of a short text is not cut.

    Returns:
        From 1 to `max(parts, MAX_SECTIONS)` sections, which cover the text without gap or overlap;
        smaller neighbours are joined where there would be more.

    Raises:
        ValueError: `parts` is under 1.
    """
    if parts < 1:
        raise ValueError(f"parts must be at least 1, not {parts}")
    headings = _section_headings(find_headings(text))
    titles = {heading.start: heading.title for heading in headings}
    starts = _with_beginning(text, [heading.start for heading in headings])
    if len(starts) > 1:
        titles[0] = titles.get(starts[0], "") if starts[0] else titles.get(0, "")
        return _sections(text, _joined([0, *starts[1:]], len(text)), titles)
    return _sections(text, [0, *_equal_cuts(text, parts)], {})


def _section_headings(headings: Sequence[Heading]) -> list[Heading]:
    """Return the headings down to the topmost level that has at least two of them."""
    levels = [heading.level for heading in headings]
    level = min((level for level in set(levels) if levels.count(level) > 1), default=0)
    return [heading for heading in headings if heading.level <= level]


def _with_beginning(text: str, starts: list[int]) -> list[int]:
    """Put the start of the text first, unless only white space stands before the first heading."""
    if starts and not text[: starts[0]].strip():
        return starts
    return [0, *starts]


def _joined(starts: Sequence[int], end: int) -> list[int]:
    """Join neighbours, if they are too many, until none is shorter than its share."""
    if len(starts) <= MAX_SECTIONS:
        return list(starts)
    kept = [starts[0]]
    for start in starts[1:]:
        if (start - kept[-1]) * MAX_SECTIONS >= end:
            kept.append(start)
    return kept[:MAX_SECTIONS]


def _equal_cuts(text: str, parts: int) -> Iterator[int]:
    last = 0
    size = len(text) / parts
    window = int(min(size / 2, _WINDOW_CHARACTERS))
    for number in range(1, parts):
        cut = _nearest_cut(text, int(size * number), window)
        if cut is not None and last < cut < len(text) and text[last:cut].strip():
            yield cut
            last = cut


def _nearest_cut(text: str, place: int, window: int) -> int | None:
    """Return where to cut near a place; None in a short text without a boundary there."""
    start, stop = max(0, place - window), min(len(text), place + window)
    kinds = _CUTS if window < _WINDOW_CHARACTERS else (*_CUTS, _SPACE)
    for kind in kinds:
        ends = [match.end() for match in kind.finditer(text, start, stop)]
        if ends:
            return min(ends, key=lambda end: abs(end - place))
    return place if window >= _WINDOW_CHARACTERS else None


def _sections(text: str, starts: Sequence[int], titles: dict[int, str]) -> tuple[Section, ...]:
    ends = [*starts[1:], len(text)]
    return tuple(
        Section(Span(start, end), titles.get(start, ""))
        for start, end in zip(starts, ends, strict=True)
    )


MAX_PAIRS = 512  # of attended blocks


class SectionReader(Protocol):
    """The part of an encoder that reads sections; see `encoder.onnx_encoder.OnnxEncoder`."""

    def section_vector(
        self, blocks: Float32, number: int, next_blocks: Float32, next_number: int
    ) -> Float32:
        """Return the vector [D] of a section, of unit norm."""
        ...

    def chunk_attention(self, blocks: Float32, next_blocks: Float32) -> Float32 | None:
        """Return how much blocks attend to those of a following section: [S, T]."""
        ...


def section_vectors(
    reader: SectionReader, block_vectors: Float32, offsets: Int64, sections: Sequence[Section]
) -> Float32:
    """Return the vector of each section of a text, [L, D], unit norm; zero if it was not read.

    Sections follow one another as in training: after the last comes the first.

    Args:
        reader: of the model that made the block vectors.
        block_vectors: [S, H] of the text, at least one.
        offsets: [S, 2], first character and the character after the last of each block.
        sections: L of the text, in order.
    """
    places = [np.arange(*section) for section in blocks_of_sections(offsets, sections)]
    read = [number for number, place in enumerate(places) if len(place)]
    found = []
    for number, section in enumerate(read):
        after = (number + 1) % len(read)
        own, following = block_vectors[places[section]], block_vectors[places[read[after]]]
        found.append(reader.section_vector(own, number, following, after))
    vectors = np.zeros((len(sections), len(found[0])), dtype=np.float32)
    vectors[read] = found
    return vectors


def blocks_of_sections(offsets: Int64, sections: Sequence[Section]) -> list[tuple[int, int]]:
    """Return the blocks of each section, as (first, after the last).

    They are the blocks that begin in the section; where none does, those that reach into it, and
    none where the section was not read.
    """
    starts = [0, *(section.span.start for section in sections[1:]), sections[-1].span.end]
    cuts = np.searchsorted(offsets[:, 0], starts, side="left").tolist()
    found = []
    for (first, last), section in zip(pairwise(cuts), sections, strict=True):
        if first == last:  # the block before it may reach into it
            first -= first > 0 and offsets[first - 1, 1] > section.span.start
        found.append((int(first), last))
    return found


def attended_blocks(
    reader: SectionReader, left: tuple[Float32, Int64], right: tuple[Float32, Int64]
) -> tuple[AttendedBlockPair, ...] | None:
    """Return the pairs of blocks of two texts that attend to each other most, the strongest first.

    They are `MAX_PAIRS` at most; None where the model has no attention. Each text is given as its
    block vectors [S, H] and offsets [S, 2].
    """
    there = reader.chunk_attention(left[0], right[0])  # [S, T], rows sum to 1
    back = reader.chunk_attention(right[0], left[0])  # [T, S]
    if there is None or back is None:
        return None
    times = (there * len(back) + back.T * len(there)) / 2  # even weights are 1 / T and 1 / S
    best = np.argsort(-times, axis=None, kind="stable")[:MAX_PAIRS]
    return tuple(
        AttendedBlockPair(
            Span(*left[1][row].tolist()),
            Span(*right[1][column].tolist()),
            float(there[row, column]),
            float(back[column, row]),
            float(times[row, column]),
        )
        for row, column in zip(*np.unravel_index(best, times.shape), strict=True)
    )

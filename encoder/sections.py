"""The sections of a text: its own where it has headings, else equal parts (CoLDE, section 3.1)."""

import re
from collections.abc import Iterator, Sequence

from encoder.comparison import Section, Span
from encoder.headings import Heading, find_headings

MAX_SECTIONS = 64  # a matrix of more is neither read nor drawn

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
    level = min((one for one in set(levels) if levels.count(one) > 1), default=0)
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

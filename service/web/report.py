"""The page of a comparison: one self-contained HTML file.

Its pictures are the matrix of sections, and the ribbons between passages.
"""

import base64
import hashlib
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from encoder.arrays import Int64
from encoder.comparison.compare import percent
from encoder.comparison.result import (
    AlignedPassage,
    Comparison,
    Difference,
    PassageKind,
    Relation,
    Section,
    Span,
)
from service.web.marked_text import KIND_CLASSES, MarkedText, Side, join_lines, mark_text, visible

_FOLDER = Path(__file__).parent
_PAIRS = 10
SHADES = 10
HEIGHT = 1000  # of the map of ribbons
# Pixels:
_ROOM = 300  # for the matrix, in both directions
_SMALLEST, _LARGEST = 3, 28  # side of a cell
_LABEL_LINE = 13  # of a label, along its axis
MARGIN = 20  # of the labels, to the left of and above the cells
_SHORTEST = 2  # of HEIGHT: shorter ribbons would be invisible
_PAGE_LINE = 75  # characters in a line of the page, roughly; a longer one is wrapped
_MARK = Markup("<mark class=d>{}</mark>")
_RELATIONS: dict[Relation, str] = {
    "identical": "The same text",
    "near-copy": "Mostly the same text",
    "paraphrase": "The same in other words",
    "same topic": "About the same subject",
    "uncertain": "Not clear whether they match",
    "unrelated": "Nothing in common",
}
_KINDS: dict[PassageKind, str] = {
    "verbatim": "word for word",
    "paraphrase": "in other words",
    "similar": "similar",
}


@dataclass(frozen=True, slots=True)
class ReportSide:
    """One of the two texts as the page shows it."""

    name: str
    title: str
    mention: str  # in a sentence
    text: MarkedText
    words: int
    coverage: float
    sections: tuple[Section, ...]


def render_report(
    comparison: Comparison, left_title: str, left_text: str, right_title: str, right_text: str
) -> str:
    """Return a page that shows how and where two texts match.

    The page uses no network: its Content-Security-Policy allows it to load nothing and to run only
    its own script. Texts, titles and evidence may contain anything: they are shown as text, and the
    page can always be encoded as UTF-8.
    """
    texts = join_lines(left_text), join_lines(right_text)
    passages, aligned = comparison.passages, comparison.block_alignment
    left = _side("left", left_title, texts[0], comparison)
    right = _side("right", right_title, texts[1], comparison)
    ranges = left.text.ranges, right.text.ranges
    differing = []
    if comparison.differences is not None:
        found = comparison.differences
        differing = [
            (left, right, _differing(left, *texts, found.left)),
            (right, left, _differing(right, *texts[::-1], found.right)),
        ]
    return _template().render(
        comparison=comparison,
        left=left,
        right=right,
        texts=texts,
        passages=list(zip(passages, *ranges, draw_ribbons(*texts, passages), strict=True)),
        pairs=() if aligned is None else aligned.pairs[:_PAIRS],
        attended=(comparison.attended_blocks or ())[:_PAIRS],
        differing=differing,
        counts=Counter(passage.kind for passage in passages),
        section_scores=comparison.section_scores.tolist(),
        rows=draw_axis(len(left.sections)),
        columns=draw_axis(len(right.sections)),
    )


def content_security_policy() -> str:
    """Return the Content-Security-Policy of the page."""
    return (
        f"default-src 'none'; style-src {style_source()}; script-src {script_source()}; "
        "base-uri 'none'; form-action 'none'"
    )


def style_source() -> str:
    """Return the source expression of the style of the page in a policy: its digest."""
    return _digest_source(_style())


def script_source() -> str:
    """Return the source expression of the script of the page in a policy: its digest."""
    return _digest_source(_read("report.js"))


def page_headers() -> dict[str, str]:
    """Return the headers of the page, including those that cannot be set inside a page."""
    return {
        "Cache-Control": "no-store",  # it contains the texts
        "Content-Security-Policy": f"{content_security_policy()}; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: percent(share).replace(" ", "\N{NO-BREAK SPACE}")
    environment.filters["excerpt"] = _excerpt
    environment.filters["shade"] = shade_of
    environment.globals.update(
        kind_classes=KIND_CLASSES,
        kinds=_KINDS,
        relations=_RELATIONS,
        map_height=HEIGHT,
        margin=MARGIN,
        shades=SHADES,
        policy=content_security_policy(),
        style=_style(),
        script=_read("report.js"),
    )
    return environment.get_template("report.html")


def _finalize(value: object) -> object:
    """Make values of the page visible; `Markup` is made by us and is visible already."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _side(name: Side, title: str, text: str, comparison: Comparison) -> ReportSide:
    marks = [(getattr(passage, name), passage.kind) for passage in comparison.passages]
    sections = getattr(comparison, f"{name}_sections")
    return ReportSide(
        name=name,
        title=title.strip() or f"{name.capitalize()} text",
        mention=title.strip() or f"the {name} text",
        text=mark_text(text, name, marks, sections),
        words=len(text.split()),
        coverage=getattr(comparison, f"{name}_coverage"),
        sections=sections,
    )


def _differing(
    side: ReportSide, text: str, other: str, found: Sequence[Difference]
) -> list[tuple[Difference, int, Markup, str]]:
    """Return each difference with the number of its section, its text, and what the other says."""
    starts = [section.span.start for section in side.sections]
    return [
        (
            difference,
            max(1, bisect(starts, difference.span.start)),
            _marked(text, difference),
            "" if difference.nearest is None else other[slice(*difference.nearest)],
        )
        for difference in found
    ]


def _marked(text: str, difference: Difference) -> Markup:
    """Return the text of a block; in one that was changed, the words that differ are marked."""
    here, end = difference.span
    parts = []
    for start, stop in difference.words if difference.kind == "changed" else ():
        parts += [escape(visible(text[here:start])), _MARK.format(visible(text[start:stop]))]
        here = stop
    return Markup("").join([*parts, escape(visible(text[here:end]))])


def _excerpt(text: str, span: Span, characters: int) -> str:
    """Return the beginning of a part of a text on one line, cut between words if possible."""
    line = " ".join(text[slice(*span)][: 3 * characters].split())
    if len(line) <= characters:
        return line
    cut = line[:characters]
    return (cut.rpartition(" ")[0] or cut) + "…"


def _digest_source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _style() -> str:
    """Return the style of the page: what all pages share, then its own."""
    return _read("static/design.css") + _read("report.css")


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or the columns of the matrix; all lengths in pixels.

    Attributes:
        cell: the length of a cell along the axis.
        length: of the axis.
        labels: the number of a section, from 1, and its middle: as many as there is room for.
    """

    cell: int
    length: int
    labels: list[tuple[int, float]]


def draw_axis(sections: int) -> Axis:
    """Lay out the sections of one text."""
    cell = min(max((_ROOM - MARGIN) // sections, _SMALLEST), _LARGEST)
    shown = range(0, sections, -(-_LABEL_LINE // cell))
    return Axis(cell, cell * sections, [(n + 1, (n + 0.5) * cell) for n in shown])


def shade_of(score: float) -> int:
    """Return the shade of a cosine, 0 to SHADES - 1: equal steps from 0 to 1."""
    return int(np.clip(score * SHADES, 0, SHADES - 1))


def draw_ribbons(left: str, right: str, passages: Sequence[AlignedPassage]) -> list[str]:
    """Return the outline of a ribbon from each passage on the left to its match on the right.

    It is an SVG path in a box 100 wide and HEIGHT high, to which each text is scaled.
    """
    left_extents = _extents(left, [passage.left for passage in passages])
    right_extents = _extents(right, [passage.right for passage in passages])
    both = np.hstack([left_extents, right_extents])
    # A band that curves from left to right and meets both edges at a right angle.
    return [
        f"M0 {left_top}H9C50 {left_top} 50 {right_top} 91 {right_top}H100"
        f"V{right_end}H91C50 {right_end} 50 {left_end} 9 {left_end}H0Z"
        for left_top, left_end, right_top, right_end in both.tolist()
    ]


def _extents(text: str, spans: Sequence[Span]) -> Int64:
    """Return where spans begin and end on the map, Int64[P, 2].

    The height of a character is given by the lines before it, including wrapped ones.
    """
    lengths = np.array([len(line) for line in text.split("\n")])
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    rows = np.concatenate([[0], np.cumsum(1 + lengths // _PAGE_LINE)])
    positions = np.array(spans, dtype=np.float64).reshape(-1, 2)
    heights = np.interp(positions, starts, rows * HEIGHT / rows[-1])
    extents: Int64 = heights.round().astype(np.int64)
    extents[:, 0] = np.minimum(extents[:, 0], HEIGHT - _SHORTEST)
    extents[:, 1] = np.maximum(extents[:, 1], extents[:, 0] + _SHORTEST)
    return extents

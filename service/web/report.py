"""The page of a comparison: one self-contained HTML file."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from encoder.comparison.result import (
    AlignedBlockPair,
    AlignedPassage,
    AttendedBlockPair,
    Comparison,
    PassageKind,
    Section,
)
from service.web.marked_text import KIND_CLASSES, MarkedText, mark_text, visible
from service.web.pictures import HEIGHT, SHADES, draw_matrix, draw_ribbons

_FOLDER = Path(__file__).parent
_EXCERPT = 90  # characters of a passage that the list shows
_BLOCK_EXCERPT = 160  # characters of a block and of the one that it is aligned with
_PAIRS = 10


@dataclass(frozen=True, slots=True)
class ReportSide:
    """One of the two texts as the page shows it."""

    name: str
    title: str
    text: MarkedText
    words: int
    coverage: float
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class ListedPassage:
    """A passage in the list: an excerpt from the left text, and its marks on both sides."""

    kind: PassageKind
    score: float
    excerpt: str
    left_range: tuple[int, int]
    right_range: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ListedAttention:
    """A pair of attended blocks in the list: excerpts from both texts, and the attention."""

    left: str
    right: str
    left_attention: float
    right_attention: float
    times_average: float


@dataclass(frozen=True, slots=True)
class ListedPair:
    """A pair of aligned blocks in the list: excerpts from both texts, similarity and share."""

    left: str
    right: str
    similarity: float
    share: float


def render_report(
    comparison: Comparison, left_title: str, left_text: str, right_title: str, right_text: str
) -> str:
    """Return a page that shows how and where two texts match.

    The page uses no network: its Content-Security-Policy allows it to load nothing and to run only
    its own script. Texts, titles and evidence may contain anything: they are shown as text, and the
    page can always be encoded as UTF-8.
    """
    passages = comparison.passages
    lefts = [(passage.left, passage.kind) for passage in passages]
    rights = [(passage.right, passage.kind) for passage in passages]
    left = mark_text(left_text, "left", lefts, comparison.left_sections)
    right = mark_text(right_text, "right", rights, comparison.right_sections)
    aligned = comparison.block_alignment
    return _template().render(
        comparison=comparison,
        left=ReportSide(
            name="left",
            title=left_title.strip() or "Left text",
            text=left,
            words=len(left_text.split()),
            coverage=comparison.left_coverage,
            sections=comparison.left_sections,
        ),
        right=ReportSide(
            name="right",
            title=right_title.strip() or "Right text",
            text=right,
            words=len(right_text.split()),
            coverage=comparison.right_coverage,
            sections=comparison.right_sections,
        ),
        rows=_rows(passages, left_text, left, right),
        pairs=[] if aligned is None else _pairs(aligned.pairs[:_PAIRS], left_text, right_text),
        attended=_attended((comparison.attended_blocks or ())[:_PAIRS], left_text, right_text),
        counts=Counter(passage.kind for passage in passages),
        ribbons=draw_ribbons(left_text, right_text, passages),
        matrix=draw_matrix(
            comparison.section_scores, comparison.left_sections, comparison.right_sections
        ),
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
    environment.filters["percent"] = percent
    environment.globals.update(
        kind_classes=KIND_CLASSES,
        map_height=HEIGHT,
        shades=SHADES,
        policy=content_security_policy(),
        style=_style(),
        script=_read("report.js"),
    )
    return environment.get_template("report.html")


def percent(share: float) -> str:
    """Return a share as a percentage; "100 %" and "0 %" are exact."""
    if 0 < share < 0.01:
        return "<1\N{NO-BREAK SPACE}%"
    if 0.99 < share < 1:
        return ">99\N{NO-BREAK SPACE}%"
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def _finalize(value: object) -> object:
    """Make values of the page visible; `Markup` is made by us and is visible already."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _rows(
    passages: Sequence[AlignedPassage], text: str, left: MarkedText, right: MarkedText
) -> list[ListedPassage]:
    """Return the list of the passages; `text` is the left one."""
    return [
        ListedPassage(
            kind=passage.kind,
            score=passage.score,
            excerpt=_excerpt(text[slice(*passage.left)], _EXCERPT),
            left_range=left_range,
            right_range=right_range,
        )
        for passage, left_range, right_range in zip(
            passages, left.ranges, right.ranges, strict=True
        )
    ]


def _pairs(pairs: Sequence[AlignedBlockPair], left: str, right: str) -> list[ListedPair]:
    """Return the list of pairs of aligned blocks."""
    return [
        ListedPair(
            left=_excerpt(left[slice(*pair.left)], _BLOCK_EXCERPT),
            right=_excerpt(right[slice(*pair.right)], _BLOCK_EXCERPT),
            similarity=pair.similarity,
            share=pair.share,
        )
        for pair in pairs
    ]


def _attended(pairs: Sequence[AttendedBlockPair], left: str, right: str) -> list[ListedAttention]:
    """Return the list of pairs of attended blocks."""
    return [
        ListedAttention(
            left=_excerpt(left[slice(*pair.left)], _BLOCK_EXCERPT),
            right=_excerpt(right[slice(*pair.right)], _BLOCK_EXCERPT),
            left_attention=pair.left_attention,
            right_attention=pair.right_attention,
            times_average=pair.times_average,
        )
        for pair in pairs
    ]


def _excerpt(part: str, characters: int) -> str:
    """Return the beginning of a part on one line, cut between words if possible."""
    line = " ".join(part[: 3 * characters].split())
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

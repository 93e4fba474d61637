"""Comparisons made by hand, and a real browser to read their pages in."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from encoder.comparison import result
from service.web.report import render_report
from tests.kit.browser import PageLog, open_chromium
from tests.kit.waiting import TIMEOUT_S

WINDOW: ViewportSize = {"width": 1440, "height": 900}
KINDS: tuple[result.PassageKind, ...] = ("verbatim", "paraphrase", "similar")
PAIR = result.PairScore(
    score=0.873, scored_as="hybrid", semantic_score=0.7, vector_score=0.8, alignment_score=0.314,
    lexical_score=0.9, probability=0.94,
)  # fmt: skip
WORDS = ("lighthouse", "keeper", "storm", "lamp", "harbour", "pilot", "signal", "tower", "fog")


def prose(words: int, seed: int) -> str:
    """Paragraphs of English-looking words."""
    draw = random.Random(seed)
    drawn = (draw.choice(WORDS) + draw.choice([" ", " ", ", ", ".\n\n"]) for _ in range(words))
    return "".join(drawn)


def halves(text: str) -> tuple[result.Section, ...]:
    middle = len(text) // 2
    return (
        result.Section(result.Span(0, middle), "Beginning"),
        result.Section(result.Span(middle, len(text)), ""),
    )


def compare_by_hand(
    left: str, right: str, *passages: tuple[result.Span, result.Span]
) -> result.Comparison:
    """A comparison of two texts with these passages, their kinds in turn."""
    return result.Comparison(
        pair=PAIR,
        relation="paraphrase",
        evidence=("3 passages say the same in other words.", "31% of the words are shared."),
        left_sections=halves(left),
        right_sections=halves(right),
        section_scores=np.array([[0.91, 0.2], [-0.1, 0.55]], dtype=np.float32),
        section_scores_from="block vectors",
        passages=tuple(
            result.AlignedPassage(*spans, score=0.8, kind=KINDS[number % 3])
            for number, spans in enumerate(passages)
        ),
        block_alignment=result.BlockAlignment(
            0.314,
            tuple(
                result.AlignedBlockPair(
                    *spans, similarity=0.75 / (number + 1), share=0.5 ** (number + 1)
                )
                for number, spans in enumerate(passages)
            ),
        ),
        attended_blocks=None,
        left_coverage=0.43,
        right_coverage=0.08,
    )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for the tests of a module; their fixtures of the service must come before it."""
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page without preferences, but without slow scrolling."""
    with chromium.new_context(viewport=WINDOW, reduced_motion="reduce") as context:
        context.set_default_timeout(TIMEOUT_S * 1000)
        yield context.new_page()


@pytest.fixture
def page_log(page: Page) -> PageLog:
    """What `page` does."""
    return PageLog.of(page)


@pytest.fixture
def page_without_script(chromium: Browser) -> Iterator[Page]:
    """The same page where scripts are not allowed."""
    with chromium.new_context(
        viewport=WINDOW, reduced_motion="reduce", java_script_enabled=False
    ) as context:
        context.set_default_timeout(TIMEOUT_S * 1000)
        yield context.new_page()


@dataclass(frozen=True)
class Sample:
    """Two texts and four passages; the second and the third overlap on both sides."""

    left: str = prose(1500, seed=1)
    right: str = prose(2500, seed=2)
    passages: tuple[tuple[result.Span, result.Span], ...] = (
        (result.Span(100, 400), result.Span(12_000, 12_300)),
        (result.Span(5000, 5600), result.Span(300, 900)),
        (result.Span(5400, 6000), result.Span(700, 1500)),
        (result.Span(8000, 8100), result.Span(14_000, 14_200)),
    )

    def comparison(self) -> result.Comparison:
        return compare_by_hand(self.left, self.right, *self.passages)


@pytest.fixture(scope="session")
def sample() -> Sample:
    return Sample()


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., result.Comparison]:
    """Makes a comparison of two texts with the passages that are given."""
    return compare_by_hand


@pytest.fixture(scope="session")
def words() -> Callable[..., str]:
    """Makes a text of as many words."""
    return prose


@pytest.fixture(scope="session")
def report(sample: Sample) -> str:
    """The page of the sample, as HTML."""
    return render_report(
        sample.comparison(), "Left & lamp", sample.left, "Right tower", sample.right
    )


@pytest.fixture
def report_file(report: str, tmp_path: Path) -> Callable[..., str]:
    """Write a page, by default that of the sample, to a file and return its address."""

    def write(html: str = report) -> str:
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8")
        return file.as_uri()

    return write


@pytest.fixture
def show(page: Page, page_log: PageLog, report_file: Callable[..., str]) -> Callable[..., Page]:
    """Open a page, by default that of the sample."""

    def opened(*html: str, fragment: str = "") -> Page:
        page.goto("about:blank")
        page_log.requests.clear()
        page_log.complaints.clear()
        page.goto(report_file(*html) + fragment)
        return page

    return opened

"""Comparisons made by hand, and a real browser to read their pages in."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from encoder.comparison.result import AlignedPassage, Comparison, PassageKind, Section, Span
from service.web.report import render_report
from tests.tools.browser import Browser
from tests.tools.devtools_pipe import PACKAGE, find_chromium

KINDS: tuple[PassageKind, ...] = ("verbatim", "paraphrase", "similar")
WORDS = ("lighthouse", "keeper", "storm", "lamp", "harbour", "pilot", "signal", "tower", "fog")


def prose(words: int, seed: int) -> str:
    """Paragraphs of English-looking words."""
    draw = random.Random(seed)
    drawn = (draw.choice(WORDS) + draw.choice([" ", " ", ", ", ".\n\n"]) for _ in range(words))
    return "".join(drawn)


def halves(text: str) -> tuple[Section, ...]:
    middle = len(text) // 2
    return (
        Section(Span(0, middle), "Beginning"),
        Section(Span(middle, len(text)), ""),
    )


def compare_by_hand(left: str, right: str, *passages: tuple[Span, Span]) -> Comparison:
    """A comparison of two texts with these passages, their kinds in turn."""
    return Comparison(
        score=0.873,
        probability=0.94,
        relation="paraphrase",
        evidence=("3 passages say the same in other words.", "31% of the words are shared."),
        left_sections=halves(left),
        right_sections=halves(right),
        section_scores=np.array([[0.91, 0.2], [-0.1, 0.55]], dtype=np.float32),
        passages=tuple(
            AlignedPassage(*spans, score=0.8, kind=KINDS[number % 3])
            for number, spans in enumerate(passages)
        ),
        left_coverage=0.43,
        right_coverage=0.08,
    )


@pytest.fixture(scope="session")
def chromium() -> None:
    """A Chromium; where there is none and we may, Debian's is installed."""
    if find_chromium() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.fail(f"these tests need a browser: install the package {PACKAGE}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-qy", "--no-install-recommends", PACKAGE]):
        done = subprocess.run(
            ["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(f"apt-get {' '.join(arguments)}: {done.stderr}")


@pytest.fixture(scope="session")
def one_browser(chromium: None) -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Browser:
    """The browser as a reader has it who wants nothing special, but no slow scrolling."""
    one_browser.resize(1440, 900)
    one_browser.prefer(prefers_reduced_motion="reduce")
    one_browser.allow_script(allowed=True)
    return one_browser


@dataclass(frozen=True)
class Sample:
    """Two texts and four passages; the second and the third overlap on both sides."""

    left: str = prose(1500, seed=1)
    right: str = prose(2500, seed=2)
    passages: tuple[tuple[Span, Span], ...] = (
        (Span(100, 400), Span(12_000, 12_300)),
        (Span(5000, 5600), Span(300, 900)),
        (Span(5400, 6000), Span(700, 1500)),
        (Span(8000, 8100), Span(14_000, 14_200)),
    )

    def comparison(self) -> Comparison:
        return compare_by_hand(self.left, self.right, *self.passages)


@pytest.fixture(scope="session")
def sample() -> Sample:
    return Sample()


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., Comparison]:
    """Makes a comparison of two texts with the passages that are given."""
    return compare_by_hand


@pytest.fixture(scope="session")
def words() -> Callable[..., str]:
    """Makes a text of as many words."""
    return prose


@pytest.fixture(scope="session")
def page(sample: Sample) -> str:
    return render_report(
        sample.comparison(), "Left & lamp", sample.left, "Right tower", sample.right
    )


@pytest.fixture
def show(browser: Browser, page: str, tmp_path: Path) -> Callable[..., Browser]:
    """Opens a page, by default that of the sample."""

    def opened(html: str = page, fragment: str = "") -> Browser:
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8")
        browser.open(file.as_uri() + fragment)
        return browser

    return opened

"""The content of the page, without a browser."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bs4 import BeautifulSoup

from encoder.comparison.compare import percent
from encoder.comparison.result import AttendedBlockPair, BlockAlignment, Comparison, Span
from service.web.report import content_security_policy, render_report
from tests.kit.page_fixtures import Sample

Make = Callable[..., Comparison]


@pytest.fixture(scope="session")
def soup(report: str) -> BeautifulSoup:
    return BeautifulSoup(report, "html.parser")


def test_ids_are_unique_and_every_link_leads_to_one(soup: BeautifulSoup) -> None:
    ids = Counter(element["id"] for element in soup.find_all(id=True))
    assert max(ids.values()) == 1
    links = [link["href"] for link in soup.find_all(href=True)]
    assert len(links) > 10
    assert all(link.startswith("#") and link[1:] in ids for link in links)


def test_the_policy_names_only_the_style_and_script(report: str) -> None:
    sources = re.findall(r"'(sha256-[^']*)'", content_security_policy())
    inline = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", report, flags=re.DOTALL)
    digests = [hashlib.sha256(part.encode()).digest() for part in inline]
    assert sources == [f"sha256-{base64.b64encode(digest).decode()}" for digest in digests]
    [meta] = BeautifulSoup(report, "html.parser").find_all(
        attrs={"http-equiv": "Content-Security-Policy"}
    )
    assert meta["content"] == content_security_policy()
    assert content_security_policy().startswith("default-src 'none'; ")
    assert "unsafe" not in content_security_policy()


def test_the_figures_are_there(soup: BeautifulSoup) -> None:
    text = " ".join(soup.get_text(" ").split())
    figures = ("94 % likely to match", "43 %", "8 %", "0.91", "-0.10")
    for figure in ("The same in other words", *figures):
        assert figure in text, figure
    assert "31% of the words are shared." in [li.get_text() for li in soup.select(".evidence li")]
    legend = [item.get_text() for item in soup.select(".legend li")]
    assert legend == ["word for word 2", "in other words 1", "similar 1"]
    cells = [(cell["class"], cell["x"], cell["y"]) for cell in soup.select("#matrix g rect")]
    assert [(x, y) for _, x, y in cells] == [("0", "0"), ("28", "0"), ("0", "28"), ("28", "28")]
    assert cells[0][0] == ["h9"]  # of 0.91
    assert len(soup.select("#section-table td")) == 5
    assert len(soup.select("#passages li")) == 4


def test_aligned_blocks_are_side_by_side(soup: BeautifulSoup, sample: Sample) -> None:
    items = soup.select("#aligned li")
    assert len(items) == len(sample.passages)
    for item, spans in zip(items, sample.passages, strict=True):
        texts = (sample.left, sample.right)
        for shown, text, span in zip(item.find_all("bdi"), texts, spans, strict=True):
            begins = " ".join(text[slice(*span)].split())
            assert len(shown.get_text()) > 80
            assert begins.startswith(shown.get_text().removesuffix("…"))
    figures = items[1].small.get_text()
    assert figures == "similarity 0.38, 25.0\N{NO-BREAK SPACE}% of what all parts have in common"


def test_what_is_missing_is_said_or_left_out(by_hand: Make) -> None:
    def page(**changed: Any) -> str:
        return render_report(replace(by_hand("a b", "c d"), **changed), " ", "a b", "", "c d")

    assert "closest in meaning" not in page(block_alignment=None)
    none = "No part of one text is closer to the other than chance."
    assert none in page(block_alignment=BlockAlignment(0.0, ()))
    unmeasured = replace(by_hand("a b", "c d").pair, probability=None)
    assert "likely to match" in page()
    assert "likely to match" not in page(pair=unmeasured)
    assert "not calibrated" in page(pair=unmeasured)
    assert "<title>Left text and the right text compared</title>" in page()


def test_attended_blocks_are_shown_where_the_model_has_them(by_hand: Make) -> None:
    comparison = by_hand("a b", "c d")
    page = BeautifulSoup(render_report(comparison, "", "a b", "", "c d"), "html.parser")
    assert page.select("#attended") == []
    assert page.select_one("#scores-from").get_text() == "how close two sections are"
    pair = AttendedBlockPair(Span(0, 1), Span(2, 3), 0.75, 0.5, 1.25)
    read = replace(comparison, section_scores_from="section vectors", attended_blocks=(pair,))
    page = BeautifulSoup(render_report(read, "", "a b", "", "c d"), "html.parser")
    (item,) = page.select("#attended li")
    assert [shown.get_text() for shown in item.find_all("bdi")] == ["a", "d"]
    assert item.small.get_text() == (
        "attention 0.750 from the left, 0.500 from the right, 1.2 times the average"
    )
    assert "as the model reads them" in page.select_one("#scores-from").get_text()


def test_blocks_are_shown_as_text(by_hand: Make) -> None:
    text = "<b>bold</b> \u202e"
    page = render_report(by_hand(text, "b", (Span(0, 13), Span(0, 1))), "", text, "", "b")
    assert ">1 passage<" in page
    (item,) = BeautifulSoup(page, "html.parser").select("#aligned li")
    assert item.find("b") is None
    assert item.bdi.get_text() == "<b>bold</b> [U+202E]"


def test_no_template_within_a_text_is_filled_in(by_hand: Make) -> None:
    text = "{{ 7 * 7 }} {% raw %} {# c #}"
    page = render_report(by_hand(text, text, (Span(0, 5), Span(0, 5))), text, text, text, text)
    assert BeautifulSoup(page, "html.parser").h2 is not None
    assert page.count("{% raw %}") >= 4
    assert "49" not in BeautifulSoup(page, "html.parser").main.get_text()  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "a", "\n\n", "\ud800", "\r\n"])
def test_the_shortest_texts_have_a_page(text: str, by_hand: Make) -> None:
    page = render_report(by_hand(text, "b", (Span(0, 1), Span(0, 1))), text, text, "b", "b")
    assert page.encode()


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0 %"), (1e-5, "<1 %"), (0.08, "8 %"), (0.994, ">99 %"), (0.99, "99 %"), (1, "100 %")],
)
def test_only_all_is_a_hundred_per_cent_and_only_nothing_none(share: float, shown: str) -> None:
    assert percent(share) == shown

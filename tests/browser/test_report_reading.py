"""The page in a real browser: that it can be read, by whom and on what."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pypdfium2
import pytest
from playwright.sync_api import Page

from encoder.comparison.result import Comparison, Difference, Differences, Span
from service.web.report import render_report
from tests.kit.browser import PageLog, announced, complaints_of_axe

Show = Callable[..., Page]
Make = Callable[..., Comparison]


def box(page: Page, selector: str) -> dict[str, float]:
    """Where an element is in the window."""
    found: dict[str, float] = page.evaluate(
        f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
    )
    return found


def style(page: Page, selector: str, name: str) -> str:
    found: str = page.evaluate(
        f"getComputedStyle(document.querySelector({json.dumps(selector)}))[{json.dumps(name)}]"
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(show: Show, scheme: Literal["light", "dark"]) -> None:
    page = show()
    page.emulate_media(color_scheme=scheme)
    for key in "n", "?":
        page.keyboard.press(key)
        page.evaluate("document.querySelector('details').open = true")
        assert complaints_of_axe(page) == []


def test_what_differs_is_a_second_view(show: Show, by_hand: Make, page_log: PageLog) -> None:
    left, right = "Pay in <b>thirty</b> days. Rest.", "Pay in sixty days. Interest is due."
    changed = Difference(Span(0, 26), "changed", (Span(10, 16),), Span(0, 18), 0.9)
    missing = Difference(Span(19, 35), "missing", (Span(19, 34),), Span(0, 18), 0.1)
    found = replace(by_hand(left, right), differences=Differences((changed,), (missing,)))
    page = show(render_report(found, "Draft", left, "Final", right))
    assert not page.is_visible("#differences")
    page.click("text=What differs")
    assert not page.is_visible("#left")
    assert page.locator("#differences .part").all_inner_texts() == [left[:26], right[19:]]
    assert page.locator("#differences mark").all_inner_texts() == [left[10:16]]
    assert "The other text: Pay in sixty days." in page.inner_text("#differences")
    assert complaints_of_axe(page) == []
    page.keyboard.press("d")
    assert page.is_visible("#left")
    page.keyboard.press("d")
    page.click("#differences a >> nth=1")
    assert page.is_visible("#left")
    assert page_log.complaints == []


def test_kinds_differ_by_more_than_colour(show: Show) -> None:
    page = show()
    lines = [style(page, f".text mark.{kind}", "textDecorationStyle") for kind in "vps"]
    assert lines == ["solid", "dashed", "dotted"]
    assert "overline" in style(page, ".text mark.o", "textDecorationLine")


def test_lines_are_those_of_the_text(show: Show, by_hand: Make) -> None:
    text = "\n  one\n\n\ttwo   three\n"
    page = show(render_report(by_hand(text, "x"), "a", text, "b", "x"))
    middle = len(text) // 2
    seen = page.evaluate("document.querySelector('#left .text').innerText")
    assert seen == f"§1{text[:middle]}§2{text[middle:]}"
    assert box(page, "#left .text")["height"] > 4 * 27


@pytest.mark.parametrize("width", [320, 400, 700])
def test_on_a_narrow_screen_everything_stands_in_one_column(show: Show, width: int) -> None:
    page = show()
    page.set_viewport_size({"width": width, "height": 800})
    places = [box(page, name) for name in ("#findings", "#left", "#right")]
    assert all(above["bottom"] <= below["top"] for above, below in pairwise(places))
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_each_text_runs_in_its_direction(show: Show, by_hand: Make) -> None:
    hebrew = "מגדלור עומד על החוף\n" * 3 + "a line of English\n"
    page = show(
        render_report(by_hand(hebrew, "x", (Span(0, 6), Span(0, 1))), hebrew, hebrew, "x", "x")
    )
    text, marked = box(page, "#left .text"), box(page, "#left .text mark")
    middle = text["left"] + text["width"] / 2
    assert marked["left"] > middle
    assert style(page, "#left h2 bdi", "unicodeBidi") == "isolate"
    english = page.evaluate(
        "(() => { const text = document.querySelector('#left .text').lastChild;"
        " const range = document.createRange(); const at = text.data.indexOf('English');"
        " range.setStart(text, at); range.setEnd(text, at + 7);"
        " return range.getBoundingClientRect().toJSON(); })()"
    )
    assert english["right"] < middle


def test_strong_contrast_and_forced_colours_keep_what_is_marked(show: Show) -> None:
    page = show()
    page.emulate_media(contrast="more")
    assert style(page, "mark", "textDecorationThickness") == "3px"
    assert style(page, ".brand", "color") == style(page, "html", "color")
    page.emulate_media(contrast="no-preference", forced_colors="active")
    assert "underline" in style(page, "mark", "textDecorationLine")
    assert len({style(page, f".h{shade}", "fill") for shade in (0, 5, 9)}) == 3


def test_printed_texts_have_numbers_and_no_controls(show: Show, by_hand: Make) -> None:
    left, right = "A lamp in the fog. " * 40, "The tower at night. " * 40
    comparison = by_hand(left, right, (Span(19, 37), Span(20, 39)), (Span(57, 75), Span(0, 19)))
    page = show(render_report(comparison, "Lamps", left, "Towers", right))
    document = pypdfium2.PdfDocument(io.BytesIO(page.pdf()))
    sheets = [" ".join(sheet.get_textpage().get_text_range().split()) for sheet in document]
    document.close()
    assert len(sheets) == 3
    assert sheets[1].count("lamp in the fog") == 40
    assert sheets[2].count("tower at night") == 40
    for sheet in sheets:
        assert "1" in sheet
        assert "2" in sheet
    assert "The same in other words" in sheets[0]
    assert not any("Previous" in sheet or "Keys" in sheet for sheet in sheets)


def test_roles_and_names_are_exposed(show: Show) -> None:
    shown = announced(show())
    for expected in (
        *(
            ("heading", "The same in other words"),
            ("complementary", "Findings"),
            ("region", "Left & lamp"),
        ),
        *(("region", "Right tower"), ("navigation", "Passages"), ("button", "Next passage")),
    ):
        assert expected in shown, expected
    assert any(role == "image" and "How close each section" in name for role, name in shown)
    assert {"main", "status", "mark", "link", "list"} <= {role for role, _ in shown}


def test_twenty_thousand_words_and_five_hundred_passages(
    show: Show, by_hand: Make, words: Callable[..., str], tmp_path: Path
) -> None:
    left, right = words(20_000, seed=3), words(20_000, seed=4)
    spans = [(Span(n * 250, n * 250 + 400), Span(n * 240, n * 240 + 300)) for n in range(500)]
    html = render_report(by_hand(left, right, *spans), "Left", left, "Right", right)
    assert len(html.encode()) < 3 * (len(left) + len(right))
    page = show(html)
    assert page.evaluate("performance.timing.loadEventStart - performance.timing.fetchStart") < 8e3
    took = page.evaluate(
        "(() => { const start = performance.now();"
        " for (let n = 0; n < 20; n++) document.querySelector('#next').click();"
        " document.body.offsetWidth; return (performance.now() - start) / 20; })()"
    )
    assert took < 300
    assert page.evaluate("document.querySelector('#status').textContent").startswith("21 of 500")

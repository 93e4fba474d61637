"""The page in a real browser: from a passage to its counterpart, by click and by key."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from encoder.comparison.result import Comparison
from service.web.report import render_report
from tests.kit.browser import PageLog, wait_until

Show = Callable[..., Page]


def top(page: Page, selector: str) -> float:
    found: float = page.evaluate(
        f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top"
    )
    return found


def in_view(page: Page, selector: str) -> bool:
    return 40 < top(page, selector) < 860


def current(page: Page) -> str:
    found: str = page.evaluate("document.querySelector('#status').textContent")
    return found.split(":")[0]


def lit(page: Page) -> list[str]:
    """Ids of the numbers that are lit."""
    found: list[str] = page.evaluate("[...document.querySelectorAll('.n.on')].map((n) => n.id)")
    return found


def scrolled(page: Page) -> list[float]:
    found: list[float] = page.evaluate(
        "['left', 'right'].map((side) => document.getElementById(side).scrollTop)"
    )
    return found


def click_as_it_is(page: Page, selector: str) -> None:
    """Click on the first line of an element; unlike `page.click`, scroll nothing before."""
    x, y = page.evaluate(
        f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getClientRects()[0];"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    page.mouse.click(x, y)


def scroll_to_top(page: Page, side: str) -> None:
    page.evaluate(f"document.getElementById('{side}').scrollTop = 0")


def test_it_opens_at_its_first_passage(show: Show) -> None:
    page = show()
    assert current(page) == "1 of 4"
    assert lit(page) == ["l1", "r1"]
    assert in_view(page, "#l1")
    assert in_view(page, "#r1")


def test_a_click_on_a_passage_shows_its_counterpart(show: Show) -> None:
    page = show()
    scroll_to_top(page, "right")
    assert not in_view(page, "#r1")
    scroll_to_top(page, "left")
    click_as_it_is(page, "#left mark")
    assert in_view(page, "#r1")
    assert abs(top(page, "#r1") - top(page, "#l1")) < 3
    assert scrolled(page)[0] == 0
    assert lit(page) == ["l1", "r1"]
    for side in "left", "right":
        marked = page.evaluate(
            f"[...document.querySelectorAll('#{side} mark.on')].map((m) => m.textContent).join('')"
        )
        assert len(marked) == 300


def test_where_passages_overlap_each_click_takes_the_next(show: Show) -> None:
    page = show()
    page.evaluate("document.querySelector('#right mark.o').scrollIntoView({block: 'center'})")
    seen = []
    for _ in range(4):
        click_as_it_is(page, "#right mark.o")
        seen.append(current(page))
    assert seen == ["2 of 4", "3 of 4", "2 of 4", "3 of 4"]


def test_selecting_text_with_the_mouse_goes_nowhere(show: Show) -> None:
    page = show()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#left mark'))")
    page.evaluate("document.querySelector('#left mark').click()")
    assert current(page) == "1 of 4"


@pytest.mark.parametrize(("forward", "back"), [("n", "p"), ("ArrowRight", "ArrowLeft")])
def test_keys_go_from_passage_to_passage(show: Show, forward: str, back: str) -> None:
    page = show()
    visited = []
    for key in (forward, forward, back, forward, forward, forward, forward):
        page.keyboard.press(key)
        visited.append(current(page)[0])
        number = visited[-1]
        assert in_view(page, f"#l{number}"), key
        assert in_view(page, f"#r{number}"), key
        assert lit(page) == [f"l{number}", f"r{number}"]
    assert visited == list("2323444")


def test_one_and_two_go_to_a_side_which_arrows_then_scroll(show: Show) -> None:
    page = show()
    for side in "left", "right":
        scroll_to_top(page, side)
    for key, side in (("1", "left"), ("2", "right")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == side
    # The browser scrolls what it has painted: a key that comes before does nothing.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    page.keyboard.press("ArrowDown")
    wait_until(page, "document.getElementById('right').scrollTop > 0")
    assert scrolled(page)[0] == 0


def test_help_opens_and_closes_by_key(show: Show) -> None:
    page = show()
    page.keyboard.press("?")
    assert page.evaluate("document.querySelector('dialog').open")
    page.keyboard.press("n")
    assert current(page) == "1 of 4"
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('dialog').open")
    page.keyboard.press("n")
    assert current(page) == "2 of 4"


def test_letters_can_be_switched_off(show: Show) -> None:
    page = show()
    page.click("#help-button")
    page.click("#keys")
    page.click("#help-close")
    page.keyboard.press("n")
    assert current(page) == "1 of 4"
    page.keyboard.press("ArrowRight")
    assert current(page) == "2 of 4"


def test_the_focus_of_the_keyboard_is_seen(show: Show) -> None:
    page = show()
    seen = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        width, style, name = page.evaluate(
            "(() => { const it = document.activeElement; const style = getComputedStyle(it);"
            " return [style.outlineWidth, style.outlineStyle, it.id || it.className]; })()"
        )
        assert (width, style) == ("3px", "solid"), name
        seen.add(name)
    assert "skip" in seen
    assert len(seen) > 2


def test_the_list_and_the_map_go_to_both_sides(show: Show) -> None:
    page = show()
    for selector, number in (("#passages li:nth-child(3) a", 3), ("#map path:nth-child(4)", 4)):
        page.evaluate(
            f"document.querySelector({json.dumps(selector)})"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
        )
        assert lit(page) == [f"l{number}", f"r{number}"]
        assert in_view(page, f"#l{number}")
        assert in_view(page, f"#r{number}")


def test_a_link_to_a_passage_opens_at_it(show: Show) -> None:
    page = show(fragment="#r4")
    wait_until(page, "document.querySelector('#status').textContent.startsWith('4 of 4')")
    assert top(page, "#l4") == pytest.approx(225, abs=9)
    assert top(page, "#r4") == pytest.approx(225, abs=9)


def test_on_a_narrow_screen_a_click_goes_to_the_counterpart(show: Show) -> None:
    page = show()
    page.set_viewport_size({"width": 400, "height": 800})
    page.evaluate("document.querySelector('#l1').scrollIntoView({block: 'center'})")
    page.click("#l1")
    assert 0 < top(page, "#r1") < 740


def test_without_script_the_numbers_are_links(
    page_without_script: Page, report_file: Callable[..., str]
) -> None:
    page = page_without_script
    page.goto(report_file())
    assert page.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"
    text = page.evaluate("document.querySelector('#right').innerText")
    assert "Right tower" in text
    assert len(text) > 10_000
    page.click("#l1")
    page.wait_for_url("**#r1")
    assert in_view(page, "#r1")
    assert page.evaluate("getComputedStyle(document.querySelector('#r1')).outlineStyle") == "solid"


def test_a_comparison_without_passages(
    show: Show, by_hand: Callable[..., Comparison], page_log: PageLog
) -> None:
    page = show(render_report(by_hand("a b c", ""), "a", "a b c", "b", ""))
    for key in "npn":
        page.keyboard.press(key)
    assert "No passage" in page.evaluate("document.querySelector('#findings').innerText")
    assert current(page) == "0 passages"
    assert page_log.complaints == []

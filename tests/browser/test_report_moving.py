"""The page in a real browser: from a passage to its counterpart, by click and by key."""

import json
from collections.abc import Callable

import pytest

from encoder.comparison.result import Comparison
from service.web.report import render_report
from tests.tools.browser import Browser

Show = Callable[..., Browser]


def top(browser: Browser, selector: str) -> float:
    found: float = browser.evaluate(
        f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top"
    )
    return found


def in_view(browser: Browser, selector: str) -> bool:
    return 40 < top(browser, selector) < 860


def current(browser: Browser) -> str:
    found: str = browser.evaluate("document.querySelector('#status').textContent")
    return found.split(":")[0]


def lit(browser: Browser) -> list[str]:
    """Ids of the numbers that are lit."""
    found: list[str] = browser.evaluate("[...document.querySelectorAll('.n.on')].map((n) => n.id)")
    return found


def scrolled(browser: Browser) -> list[float]:
    found: list[float] = browser.evaluate(
        "['left', 'right'].map((side) => document.getElementById(side).scrollTop)"
    )
    return found


def test_a_click_on_a_passage_brings_its_counterpart_beside_it(show: Show) -> None:
    browser = show()
    assert not in_view(browser, "#r1")
    browser.click("#left mark")
    assert in_view(browser, "#r1")
    assert abs(top(browser, "#r1") - top(browser, "#l1")) < 3
    assert scrolled(browser)[0] == 0
    assert lit(browser) == ["l1", "r1"]
    for side in "left", "right":
        marked = browser.evaluate(
            f"[...document.querySelectorAll('#{side} mark.on')].map((m) => m.textContent).join('')"
        )
        assert len(marked) == 300


def test_a_click_on_the_right_moves_the_left(show: Show) -> None:
    browser = show()
    right = scrolled(browser)[1]
    browser.click("#right mark")
    assert scrolled(browser)[1] == right
    assert in_view(browser, "#l2")
    assert current(browser) == "2 of 4"


def test_where_passages_overlap_each_click_takes_the_next(show: Show) -> None:
    browser = show()
    browser.evaluate("document.querySelector('#right mark.o').scrollIntoView({block: 'center'})")
    seen = []
    for _ in range(4):
        browser.click("#right mark.o")
        seen.append(current(browser))
    assert seen == ["2 of 4", "3 of 4", "2 of 4", "3 of 4"]


def test_selecting_text_with_the_mouse_goes_nowhere(show: Show) -> None:
    browser = show()
    browser.evaluate("getSelection().selectAllChildren(document.querySelector('#left mark'))")
    browser.evaluate("document.querySelector('#left mark').click()")
    assert current(browser) == "4 passages"


@pytest.mark.parametrize(("forward", "back"), [("n", "p"), ("ArrowRight", "ArrowLeft")])
def test_keys_go_from_passage_to_passage(show: Show, forward: str, back: str) -> None:
    browser = show()
    visited = []
    for key in (forward, forward, back, forward, forward, forward, forward):
        browser.press(key)
        visited.append(current(browser)[0])
        number = visited[-1]
        assert in_view(browser, f"#l{number}"), key
        assert in_view(browser, f"#r{number}"), key
        assert lit(browser) == [f"l{number}", f"r{number}"]
    assert visited == list("1212344")


def test_going_back_first_begins_at_the_end(show: Show) -> None:
    browser = show()
    browser.press("p")
    assert current(browser) == "4 of 4"


def test_one_and_two_go_to_a_side_which_arrows_then_scroll(show: Show) -> None:
    browser = show()
    for key, side in (("1", "left"), ("2", "right")):
        browser.press(key)
        assert browser.evaluate("document.activeElement.id") == side
    # The browser scrolls what it has painted: a key that comes before does nothing.
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    browser.press("ArrowDown")
    browser.wait_until("document.getElementById('right').scrollTop > 0")
    assert scrolled(browser)[0] == 0


def test_help_opens_and_closes_by_key(show: Show) -> None:
    browser = show()
    browser.press("?")
    assert browser.evaluate("document.querySelector('dialog').open")
    browser.press("n")
    assert current(browser) == "4 passages"
    browser.press("Escape")
    browser.wait_until("!document.querySelector('dialog').open")
    browser.press("n")
    assert current(browser) == "1 of 4"


def test_letters_can_be_switched_off(show: Show) -> None:
    browser = show()
    browser.click("#help-button")
    browser.click("#keys")
    browser.click("#help-close")
    browser.press("n")
    assert current(browser) == "4 passages"
    browser.press("ArrowRight")
    assert current(browser) == "1 of 4"


def test_the_focus_of_the_keyboard_is_seen(show: Show) -> None:
    browser = show()
    seen = set()
    for _ in range(12):
        browser.press("Tab")
        width, style, name = browser.evaluate(
            "(() => { const it = document.activeElement; const style = getComputedStyle(it);"
            " return [style.outlineWidth, style.outlineStyle, it.id || it.className]; })()"
        )
        assert (width, style) == ("3px", "solid"), name
        seen.add(name)
    assert "skip" in seen
    assert len(seen) > 2


def test_enter_on_a_number_goes_to_the_other_side(show: Show) -> None:
    browser = show()
    browser.evaluate("document.querySelector('#l4').focus()")
    browser.press("Enter")
    assert lit(browser) == ["l4", "r4"]
    assert in_view(browser, "#r4")


def test_the_list_and_the_map_go_to_both_sides(show: Show) -> None:
    browser = show()
    for selector, number in (("#passages li:nth-child(3) a", 3), ("#map path:nth-child(4)", 4)):
        browser.evaluate(
            f"document.querySelector({json.dumps(selector)})"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
        )
        assert lit(browser) == [f"l{number}", f"r{number}"]
        assert in_view(browser, f"#l{number}")
        assert in_view(browser, f"#r{number}")


def test_the_map_shows_which_part_is_seen(show: Show) -> None:
    browser = show()
    browser.evaluate("document.querySelector('#left').scrollTop = 1e6")
    browser.wait_until("Number(document.querySelector('#left-view').getAttribute('y')) > 500")
    y, height = browser.evaluate(
        "['y', 'height'].map((name) =>"
        " Number(document.querySelector('#left-view').getAttribute(name)))"
    )
    assert y + height == pytest.approx(1000, abs=2)


def test_a_cell_of_the_picture_names_its_sections_and_goes_to_them(show: Show) -> None:
    browser = show()
    browser.evaluate("document.querySelector('#matrix').scrollIntoView()")
    browser.click("#matrix g rect:nth-child(3)")
    told = browser.evaluate("document.querySelector('#cell').textContent")
    assert told == "§2 (no heading) and §1 Beginning: -0.10"
    assert in_view(browser, "#ls2")
    assert in_view(browser, "#rs1")


def test_a_link_to_a_passage_opens_at_it(show: Show) -> None:
    browser = show(fragment="#r4")
    browser.wait_until("document.querySelector('#status').textContent.startsWith('4 of 4')")
    assert top(browser, "#l4") == pytest.approx(225, abs=9)
    assert top(browser, "#r4") == pytest.approx(225, abs=9)


def test_on_a_narrow_screen_a_click_goes_to_the_counterpart(show: Show) -> None:
    browser = show()
    browser.resize(400, 800)
    browser.evaluate("document.querySelector('#l1').scrollIntoView({block: 'center'})")
    browser.click("#l1")
    assert 0 < top(browser, "#r1") < 740


def test_without_script_the_numbers_are_links(browser: Browser, show: Show) -> None:
    browser.allow_script(allowed=False)
    show()
    assert (
        browser.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"
    )
    text = browser.evaluate("document.querySelector('#right').innerText")
    assert "Right tower" in text
    assert len(text) > 10_000
    browser.click("#l1")
    browser.wait_until("location.hash === '#r1'")
    assert in_view(browser, "#r1")
    assert (
        browser.evaluate("getComputedStyle(document.querySelector('#r1')).outlineStyle") == "solid"
    )


def test_a_comparison_without_passages(show: Show, by_hand: Callable[..., Comparison]) -> None:
    browser = show(render_report(by_hand("a b c", ""), "a", "a b c", "b", ""))
    for key in "npn":
        browser.press(key)
    assert "No passage" in browser.evaluate("document.querySelector('#findings').innerText")
    assert current(browser) == "0 passages"
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]

"""The page at / in a real browser: who can use it, on what, and what cannot get into it."""

from collections.abc import Callable
from typing import Literal

import pytest
from playwright.sync_api import Frame, Page, ViewportSize

from tests.kit.browser import PageLog, announced, complaints_of_axe, wait_until
from tests.kit.process_fixtures import Server
from tests.kit.search_page_fixtures import BEES, KEEPER, find, notice

PHONE: ViewportSize = {"width": 360, "height": 780}
PRESS_FIND = "document.querySelector('#find').click()"  # Playwright's click may scroll before
TOP = "document.querySelector('#matches').getBoundingClientRect().top"
Scheme = Literal["light", "dark"]


def open_filters(page: Page) -> None:
    page.click("#add-filter")
    page.fill("#text", BEES)
    page.click("#find")
    notice(page, "#filter-notice")


def open_matches(page: Page) -> None:
    page.click("[aria-label='Remove filter 1']")
    find(page, KEEPER[90:])
    for summary in page.locator(".match summary").all():
        summary.click()


def comparison_frame(page: Page) -> Frame:
    return next(frame for frame in page.frames if frame.url.startswith("blob:"))


def open_comparison(page: Page) -> None:
    page.locator(".title").first.click()
    page.frame_locator("#comparison iframe").locator("#left mark").first.wait_for()
    frame = comparison_frame(page)
    assert complaints_of_axe(frame) == []
    frame.click(".views a >> nth=1")
    assert complaints_of_axe(frame) == []


def open_index(page: Page) -> None:
    page.click("#close-comparison")
    page.click("#index-button")
    page.wait_for_selector("#index-state dd")
    page.wait_for_selector("#jobs li")


def open_help(page: Page) -> None:
    page.keyboard.press("Escape")
    page.click("#help-button")


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", None), pytest.param("dark", PHONE, marks=pytest.mark.slow)]
)
def test_axe_finds_nothing_serious_in_any_state(
    search_page: Page, scheme: Scheme, size: ViewportSize | None
) -> None:
    search_page.emulate_media(color_scheme=scheme)
    if size:
        search_page.set_viewport_size(size)
    assert complaints_of_axe(search_page) == []
    steps: tuple[Callable[[Page], None], ...]
    steps = (open_filters, open_matches, open_comparison, open_index, open_help)
    for step in steps:
        step(search_page)
        assert complaints_of_axe(search_page) == [], step.__name__


def test_on_a_phone_nothing_is_wider_than_the_screen(search_page: Page) -> None:
    search_page.set_viewport_size(PHONE)
    find(search_page, KEEPER[90:])
    # The matches are in view, though below the form.
    assert 0 <= search_page.evaluate(TOP) < PHONE["height"] / 2
    search_page.evaluate("scrollBy(0, -0.8 * innerHeight)")  # they are just in view
    search_page.evaluate(PRESS_FIND)
    assert 0 <= search_page.evaluate(TOP) < PHONE["height"] / 2
    search_page.click("#add-filter")
    assert search_page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    query, matches = (
        search_page.locator(selector).bounding_box() for selector in ("#query", "#matches")
    )
    assert query is not None
    assert matches is not None
    assert query["y"] + query["height"] <= matches["y"]
    search_page.click("#index-button")
    search_page.wait_for_selector("#index-state dd")
    assert search_page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]


def test_the_first_match_is_scrolled_into_view(search_page: Page) -> None:
    find(search_page, KEEPER[90:])
    search_page.evaluate("scrollTo(0, 300)")
    assert search_page.evaluate(TOP) < 0
    search_page.evaluate(PRESS_FIND)
    search_page.wait_for_selector(".match")
    assert search_page.evaluate(TOP) >= 0


def focused(page: Page) -> tuple[str, bool]:
    """A name for what has the focus, and whether it is seen to have it."""
    name, seen = page.evaluate("""() => {
      const it = document.activeElement;
      const drawn = it.type === "file" ? it.previousElementSibling : it;
      const { outlineWidth, outlineStyle } = getComputedStyle(drawn);
      return [it.id || it.className || it.textContent, outlineWidth === "3px" &&
        outlineStyle === "solid"];
    }""")
    return name, seen


def test_all_of_it_is_reached_and_seen_by_keyboard(search_page: Page) -> None:
    reached: list[str] = []
    while "find" not in reached and len(reached) < 30:
        search_page.keyboard.press("Tab")
        name, seen = focused(search_page)
        assert seen, name
        reached.append(name)
    order = [
        "skip", "index-button", "help-button", "text", "file", "clear", "title", "add-filter",
        "top-k", "collapse", "find",
    ]  # fmt: skip
    assert [name for name in reached if name in order] == order


def test_what_happens_is_announced(search_page: Page) -> None:
    find(search_page, BEES)
    shown = announced(search_page)
    for expected in (
        *(("form", "Query"), ("textbox", "Document"), ("button", "Find matches")),
        *(("region", "Matches"), ("button", "The dance of bees")),
        *(("button", "Compare with The dance of bees"), ("group", "Compare by")),
    ):
        assert expected in shown, expected
    live = search_page.locator("#search-status[role=status], #index-summary[role=status]")
    assert live.count() == 2
    search_page.fill("#top-k", "5000")
    search_page.click("#find")
    notice(search_page)
    assert search_page.get_by_role("alert").inner_text().startswith("A field is invalid")


def test_without_script_the_page_says_so(page_without_script: Page, search_server: Server) -> None:
    page_without_script.goto(search_server.url)
    assert "This page needs JavaScript" in page_without_script.inner_text("noscript")


def test_the_policy_stops_what_would_come_in_or_leave(search_page: Page) -> None:
    stopped = search_page.evaluate("""() => new Promise((done) => {
      const stopped = [];
      document.addEventListener("securitypolicyviolation", (event) => {
        stopped.push(event.effectiveDirective);
        if (stopped.length === 6) done(stopped.sort());
      });
      document.body.insertAdjacentHTML("beforeend",
        '<img src="http://127.0.0.1:9/a.png"><p style="color:red" onclick="alert(1)">' +
        '<iframe src="http://127.0.0.1:9/"></iframe>');
      document.querySelector("p[onclick]").click();
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
      fetch("http://127.0.0.1:9/").catch(() => {});
    })""")
    expected = ["connect-src", "frame-src", "img-src"]
    assert stopped == [*expected, "script-src-attr", "script-src-elem", "style-src-attr"]
    assert search_page.evaluate("window.ran") is None


def test_the_comparison_has_no_access_to_the_page_around_it(
    search_page: Page, page_log: PageLog
) -> None:
    find(search_page, KEEPER[90:])
    open_comparison(search_page)
    frame = comparison_frame(search_page)
    assert frame.evaluate("window.origin") == "null"
    assert frame.evaluate(
        "(() => { try { return parent.document.title; } catch (error) { return error.name; } })()"
    ) == "SecurityError"  # fmt: skip
    page_log.complaints.clear()
    frame.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
    }""")
    wait_until(search_page, "true")
    assert frame.evaluate("window.ran") is None
    assert "script-src" in " ".join(page_log.complaints)

"""The map of the documents on the page at /."""

from typing import Any, Literal

import pytest
from playwright.sync_api import Page

from tests.browser.test_page_access import PHONE
from tests.kit.browser import complaints_of_axe
from tests.kit.search_page_fixtures import DOCUMENTS, find, titles

# The places of documents on the canvas: the middles of what is drawn in a colour, by brightness.
POINTS = """() => {
  const area = document.querySelector("#map-canvas");
  const { width, height } = area;
  const { data } = area.getContext("2d").getImageData(0, 0, width, height);
  const dot = getComputedStyle(document.querySelector("#map-legend .dot")).backgroundColor;
  const [red, green, blue] = dot.match(/\\d+/g).map(Number);
  const { left, top } = area.getBoundingClientRect();
  const ratio = width / area.clientWidth;
  const found = [];
  for (let row = 0; row < width * height; row += 1) {
    if (![red, green, blue].every((part, of) => data[4 * row + of] === part)) continue;
    const [x, y] = [row % width, Math.floor(row / width)];
    if (!found.some((one) => Math.hypot(one[0] - x, one[1] - y) < 12)) found.push([x, y]);
  }
  return found.map(([x, y]) => [left + x / ratio, top + (y + 1) / ratio]);
}"""


def frame(page: Page) -> None:
    """Wait until what is to be drawn is drawn."""
    page.evaluate("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def open_map(page: Page) -> None:
    page.click("#map-button")
    page.wait_for_selector("#map-legend li")
    frame(page)


def points(page: Page) -> list[tuple[float, float]]:
    found: Any = page.evaluate(POINTS)
    return [(x, y) for x, y in found]


def test_a_point_names_its_document_and_finds_what_matches_it(search_page: Page) -> None:
    open_map(search_page)
    assert search_page.inner_text("#map-status") == f"{len(DOCUMENTS)} documents"
    name = search_page.get_attribute("#map-canvas", "aria-label")
    assert name is not None
    assert name.startswith(f"Map of {len(DOCUMENTS)} documents in 1 group.")
    found = points(search_page)
    assert len(found) > 2  # those that are no copies of another
    search_page.mouse.move(*found[0])
    search_page.wait_for_selector("#map-title bdi")
    title = search_page.inner_text("#map-title")
    search_page.mouse.click(*found[0])
    search_page.wait_for_selector("#search-status >> text=/match/")
    assert search_page.is_hidden("#map")
    assert title in search_page.inner_text("#chosen")


def test_it_is_moved_by_keyboard_and_coloured_by_a_field(search_page: Page) -> None:
    find(search_page, DOCUMENTS[0]["text"])
    assert titles(search_page)
    open_map(search_page)
    before = points(search_page)
    search_page.focus("#map-canvas")
    search_page.keyboard.press("ArrowLeft")
    frame(search_page)
    moved = points(search_page)
    assert moved != before
    search_page.keyboard.press("0")
    frame(search_page)
    assert points(search_page) == before
    search_page.fill("#map-field", "kind")
    search_page.keyboard.press("Enter")
    search_page.wait_for_selector("#map-legend >> text=story")
    legend = search_page.locator("#map-legend li").all_inner_texts()
    assert sorted(" ".join(item.split()) for item in legend) == [
        "law 1",
        "other or none 2",
        "story 2",
    ]
    search_page.click("#map-list")
    search_page.wait_for_selector("#browse-rows tr")
    assert search_page.is_hidden("#map")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_map_and_it_fits_a_phone(
    search_page: Page, scheme: Literal["light", "dark"]
) -> None:
    search_page.emulate_media(color_scheme=scheme)
    search_page.set_viewport_size(PHONE)
    open_map(search_page)
    assert complaints_of_axe(search_page) == []
    assert search_page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]

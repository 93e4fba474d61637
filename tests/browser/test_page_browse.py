"""The list of the stored documents on the page at /."""

from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.browser.test_page_access import PHONE
from tests.kit.browser import complaints_of_axe, wait_until
from tests.kit.process_fixtures import Server, serving
from tests.kit.search_page_fixtures import (
    BEES,
    DOCUMENTS,
    FAST,
    HOSTILE_TITLE,
    KEEPER,
    find,
    titles,
)

ROWS = "#browse-rows tr"
# Move the pointer over the map; return whether a point is under it.
POINT = """([x, y]) => {
  const canvas = document.getElementById("map-canvas");
  const { left, top } = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: left + x, clientY: top + y }));
  return canvas.classList.contains("over");
}"""


def drawn(page: Page) -> str:
    """Return the picture of the map."""
    return str(page.evaluate("document.getElementById('map-canvas').toDataURL()"))


def test_a_document_is_found_in_the_list_and_matched_by_keyboard(search_page: Page) -> None:
    search_page.focus("#browse-button")
    search_page.keyboard.press("Enter")
    search_page.wait_for_selector(ROWS)
    shown = search_page.locator("#browse-rows .title").all_inner_texts()
    ids = sorted(document["id"] for document in DOCUMENTS)
    by_id = {document["id"]: document["title"] for document in DOCUMENTS}
    safe = [by_id[name].replace("\u202e", "[U+202E]") for name in ids]
    assert shown == safe
    assert HOSTILE_TITLE not in shown
    assert "year: 2020" in search_page.inner_text(ROWS)
    search_page.locator("#browse").get_by_role("button", name="The keeper", exact=True).focus()
    search_page.keyboard.press("Enter")
    search_page.wait_for_selector("#search-status >> text=/match/")
    assert search_page.is_hidden("#browse")
    assert "sea/keeper" in search_page.inner_text("#chosen")
    assert titles(search_page)


def test_back_and_forward_close_and_open_the_list(search_page: Page) -> None:
    search_page.click("#browse-button")
    search_page.wait_for_selector(ROWS)
    search_page.go_back()
    search_page.wait_for_selector("#browse", state="hidden")
    search_page.go_forward()
    search_page.wait_for_selector(ROWS)
    search_page.keyboard.press("Escape")
    search_page.wait_for_selector("#browse", state="hidden")
    wait_until(search_page, "location.hash === ''")  # just after it is hidden


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_list_and_it_fits_a_phone(
    search_page: Page, scheme: Literal["light", "dark"]
) -> None:
    search_page.emulate_media(color_scheme=scheme)
    search_page.set_viewport_size(PHONE)
    search_page.click("#browse-button")
    search_page.wait_for_selector(ROWS)
    assert complaints_of_axe(search_page) == []
    assert search_page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]


def test_facets_filter_the_list_and_it_is_sorted(search_page: Page) -> None:
    search_page.click("#browse-button")
    search_page.click("#facets button[aria-label='kind: story, 2 documents']")
    search_page.wait_for_selector("#browse-status >> text='Page 1, 2 documents'")
    pressed = search_page.locator("#facets button[aria-pressed=true]")
    assert pressed.get_attribute("aria-label") == "kind: story, 2 documents"
    search_page.select_option("#browse-sort", "-size")
    search_page.click("#facets button[aria-pressed=true]")
    search_page.wait_for_selector("#browse-status >> text='Page 1, 5 documents'")
    tokens = search_page.locator("#browse-rows td:nth-child(3)").all_inner_texts()
    assert tokens == sorted(tokens, key=int, reverse=True)
    assert tokens[0] != tokens[-1]


def test_the_map_shows_a_document_and_matches_a_point(search_page: Page) -> None:
    find(search_page, KEEPER)
    search_page.click("#map-button")
    search_page.wait_for_selector("#map-status >> text=/5 documents; .*Your document is the cross/")
    search_page.select_option("#map-field", "kind")
    search_page.wait_for_selector("#map-legend >> text=/law/")
    assert complaints_of_axe(search_page) == []
    canvas = search_page.locator("#map-canvas")
    assert "The list has the same documents" in str(canvas.get_attribute("aria-label"))
    before = drawn(search_page)
    search_page.click("#map-in")
    search_page.wait_for_function(
        "before => document.getElementById('map-canvas').toDataURL() !== before", arg=before
    )
    search_page.click("#map-fit")
    box = canvas.bounding_box()
    assert box is not None
    # A sweep over the whole map: five points are somewhere.
    for x in range(10, int(box["width"]), 8):
        for y in range(10, int(box["height"]), 8):
            if search_page.evaluate(POINT, [x, y]):
                canvas.click(position={"x": x, "y": y})
                search_page.wait_for_selector("#chosen >> text=/Stored document/")
                search_page.wait_for_selector("#search-status >> text=/match/")
                assert search_page.is_hidden("#map")
                return
    raise AssertionError("no point was under the pointer")


def test_the_list_is_what_the_keyboard_has_instead_of_the_map(search_page: Page) -> None:
    search_page.focus("#map-button")
    search_page.keyboard.press("Enter")
    search_page.wait_for_selector("#map-status >> text=/5 documents/")
    search_page.focus("#map-list")
    search_page.keyboard.press("Enter")
    search_page.wait_for_selector(ROWS)
    assert search_page.is_hidden("#map")


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without documents."""
    folder = tmp_path_factory.mktemp("browse")
    with serving(folder, folder / "data", FAST, threads=1) as server:
        yield server


def test_a_collection_of_one_is_searched_and_mapped(
    open_page: Callable[..., Page], growing: Server
) -> None:
    growing.request("POST", "/index", {"documents": [{"id": "bees", "text": BEES}]})
    page = open_page(growing)
    find(page, BEES)
    assert titles(page) == ["bees"]
    page.click("#map-button")
    page.wait_for_selector("#map-status >> text=/^1 document. Your document is the cross/")
    growing.request("DELETE", "/documents/bees")


def test_pages_follow_each_other_and_none_is_a_sentence(
    growing: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(growing)
    page.click("#browse-button")
    page.wait_for_selector("#browse-status >> text='There are no documents yet.'")
    page.keyboard.press("Escape")
    body = [{"id": f"{number:03}", "text": f"Bees {number}."} for number in range(101)]
    assert growing.request("POST", "/index", {"documents": body})[0] == 200
    assert growing.request("DELETE", "/documents/000")[0] == 204
    growing.request("POST", "/index", {"documents": [{"id": "200", "text": "The last."}]})
    page.click("#browse-button")
    page.wait_for_selector("#browse-status >> text='Page 1, 100 documents'")
    assert page.locator("#browse-rows .title").first.inner_text() == "001"
    page.click("#browse-next")
    page.wait_for_selector("#browse-status >> text='Page 2, 1 document'")
    assert page.locator("#browse-rows .title").all_inner_texts() == ["200"]
    assert page.is_disabled("#browse-next")
    page.click("#browse-previous")
    page.wait_for_selector("#browse-status >> text='Page 1, 100 documents'")

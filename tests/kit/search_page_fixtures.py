"""A real server with a few documents, and the page at / in a real browser."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from encoder.checkpoint import BY_NAME
from tests.kit.browser import PageLog
from tests.kit.process_fixtures import Server, serving

FAST = BY_NAME["fast"]  # it ships, and the pages of a server are the same with it
KEEPER = (
    "The keeper of the lighthouse lit the lamp each evening before the fog came in from the sea. "
    "He trimmed the wick, polished the lens and wrote the weather into his book. When a storm "
    "broke a pane of the lantern he climbed the tower with a board and nails. Ships waited "
    "outside the harbour until the pilot saw the signal of the lamp. In winter the oil was dear "
    "and the nights were long, and his daughter took the second watch. She knew the "
    "rocks by the sound of the surf. "
)
TRIBUNAL = (
    "The tribunal held that the assessment of the tax was void because the notice was late. "
    "The appeal was allowed with costs. The commissioner had argued that the statute set no time "
    "for the notice. Two of the judges agreed, and the third wrote a dissent on the construction "
    "of the statute. Leave to appeal to the higher court was refused. "
)
BEES = (
    "Bees live in hives, and each hive has a queen. A worker that has found flowers dances on the "
    "comb: the angle of the dance tells the direction and its length the distance. Others follow "
    "the dance and carry nectar and pollen home. In winter the hive keeps warm as a cluster. "
)
HOSTILE_TITLE = "<img src=x onerror=alert(1)></h3><script>alert(2)</script>\u202egnp"
# A text that matches KEEPER by many of its words, and markup wherever it fits.
HOSTILE_TEXT = KEEPER[:300] + "<script>alert(3)</script> <b onclick=alert(4)>lamp</b> {{7*7}} " * 5

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "sea/keeper", "title": "The keeper", "text": KEEPER,
     "metadata": {"year": 1999, "kind": "story", "tags": ["sea", "light"]}},
    {"id": "sea/keeper (copy)", "title": "The keeper, again", "text": KEEPER,
     "metadata": {"year": 2001, "kind": "story"}},
    {"id": "law/tribunal", "title": "A late notice", "text": TRIBUNAL,
     "metadata": {"year": 2021, "kind": "law"}},
    {"id": "bees", "title": "The dance of bees", "text": BEES, "metadata": {"year": 2020}},
    {"id": "x/<b>hostile</b>", "title": HOSTILE_TITLE, "text": HOSTILE_TEXT,
     "metadata": {"<i>field</i>": "</button><script>alert(5)</script>\u202e", "year": 2022}},
]  # fmt: skip


@pytest.fixture(scope="session")
def search_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a checkpoint that ships that holds DOCUMENTS; do not change what it holds."""
    folder = tmp_path_factory.mktemp("search-page")
    # A loaded machine aligns the same as an idle one, and scores do not change after a minute.
    settings = {"alignment_budget_ms": 60_000, "max_queue_seconds": 60, "threads": 1}
    settings |= {"maintenance_seconds": 3600}
    with serving(folder, folder / "data", FAST, **settings) as server:
        status, answer = server.request("POST", "/index", {"documents": DOCUMENTS})
        assert (status, answer["indexed"]) == (200, len(DOCUMENTS))
        yield server


@pytest.fixture
def open_page(search_server: Server, page: Page, page_log: PageLog) -> Callable[..., Page]:
    """Open the page at / of a server, by default the shared one, and wait for its state."""

    def opened(server: Server = search_server) -> Page:
        page.goto(f"{server.url}/")
        page.wait_for_selector("#index-summary >> text=/document/")
        return page

    return opened


@pytest.fixture
def search_page(open_page: Callable[..., Page]) -> Page:
    """The page at / of the shared server."""
    return open_page()


def find(page: Page, text: str) -> None:
    """Put a text into the form, search with it by the keyboard, and wait for the answer."""
    page.fill("#text", text)
    page.press("#text", "Control+Enter")
    page.wait_for_selector("#search-status >> text=/match/")


def titles(page: Page) -> list[str]:
    """The titles of the matches that are shown."""
    return page.locator(".match .title").all_inner_texts()


def notice(page: Page, selector: str = "#search-notice") -> str:
    """What the page tells a person in a place, once it tells anything."""
    page.wait_for_selector(f"{selector} .notice")
    return page.inner_text(selector)


DROP = """([target, files]) => {
  const carried = new DataTransfer();
  for (const [name, text] of files) carried.items.add(new File([text], name));
  const event = (kind) => new DragEvent(kind, { dataTransfer: carried, bubbles: true,
    cancelable: true });
  const place = document.querySelector(target);
  place.dispatchEvent(event("dragover"));
  place.dispatchEvent(event("drop"));
}"""


def drop(page: Page, *files: tuple[str, str], target: str = "body") -> None:
    """Drop files, given by name and text, on the page."""
    page.evaluate(DROP, [target, [list(file) for file in files]])


def drop_folder(page: Page, folder: Path) -> None:
    """Drop a folder of this machine on the page, as a person does."""
    session = page.context.new_cdp_session(page)
    carried = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": 300, "y": 300, "data": carried}
        session.send("Input.dispatchDragEvent", event)


@contextmanager
def requests_of(page: Page, path: str) -> Iterator[list[Any]]:
    """Collect the bodies of the requests of a path that the page sends meanwhile."""
    bodies: list[Any] = []

    def collect(request: Any) -> None:
        if request.url.endswith(path):
            bodies.append(request.post_data_json)

    page.on("request", collect)
    yield bodies
    page.remove_listener("request", collect)

"""The pictures of this folder, taken again: `python -m docs.pictures.take` at the root.

A server serves an index of the documentation of Python's standard library, which `make demo` makes,
and Chromium matches one of its modules, compares it and opens the map.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tests.kit.browser import open_chromium
from tests.kit.process_fixtures import serving

FOLDER = Path(__file__).parent
WINDOW = (1280, 800)
COLOURS = 192
QUERY, MATCH = "asyncio.locks", "threading"


def take(page: Page, name: str) -> None:
    """Write what a page shows in both schemes, with few colours."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(500)  # the map is drawn again
        path = FOLDER / f"{name}-{scheme}.png"
        page.screenshot(path=path)
        with Image.open(path) as picture:
            few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def main(data: Path) -> None:
    """Take the pictures of the page, a comparison and the map of an index."""
    width, height = WINDOW
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), data, None, alignment_budget_ms=60_000) as server,
        open_chromium() as browser,
    ):
        text = server.request("GET", f"/documents/{QUERY}?text=true")[1]["text"]
        page = browser.new_page(
            viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        page.goto(f"{server.url}/")
        file = {"name": f"{QUERY}.md", "mimeType": "", "buffer": f"# {QUERY}\n\n{text}".encode()}
        page.set_input_files("#file", file)  # type: ignore[arg-type]
        page.wait_for_selector(".match")
        take(page, "page")
        page.click("#map-button")
        page.wait_for_selector("#map-legend li")
        take(page, "map")
        page.click("#close-map")
        page.locator(".title", has_text=MATCH).click()
        page.frame_locator("#comparison iframe").locator("#left mark").first.wait_for()
        take(page, "report")


if __name__ == "__main__":
    main(Path(*sys.argv[1:] or ["demo-data"]))

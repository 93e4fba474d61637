"""Screenshots of the page at /, for the README: `python -m benchmarks.pictures.page`.

A real server serves the index that `make demo` makes, and a real Chromium matches a file with it,
the documentation of one of Python's modules. Needs Chromium. The pictures have few colours, so that
they stay small.
"""

import io
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from benchmarks.pictures.report import PICTURES, SCHEMES, render_module
from tests.tools.browser import open_chromium
from tests.tools.process_fixtures import serving

WINDOW = (1280, 760)
COLOURS = 96
MOST_BYTES = 150_000
_BUDGET_MS = 60_000  # a loaded machine aligns the same as an idle one
_WAIT_MS = 120_000


def take_pictures(address: str, file: Path, folder: Path) -> list[Path]:
    """Match a file with the server at an address, and write a picture in each scheme."""
    pictures = [folder / f"page-{scheme}.png" for scheme in SCHEMES]
    width, height = WINDOW
    with open_chromium() as browser:
        tab = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
        tab.goto(f"{address}/")
        tab.click(
            "#examples button"
        )  # the first search of a server also reads the index into memory
        tab.wait_for_selector(".match", timeout=_WAIT_MS)
        tab.set_input_files("#file", file)
        tab.wait_for_selector(".match >> text=threading", timeout=_WAIT_MS)
        for scheme, picture in zip(SCHEMES, pictures, strict=True):
            tab.emulate_media(color_scheme=scheme)
            picture.write_bytes(shrink(tab.screenshot()))
    return pictures


def shrink(png: bytes) -> bytes:
    """Return a picture with at most `COLOURS` colours, as PNG."""
    with Image.open(io.BytesIO(png)) as picture:
        reduced = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    output = io.BytesIO()
    reduced.save(output, "PNG", optimize=True)
    return output.getvalue()


def main(
    data: Annotated[
        Path, typer.Option(help="An index, of `make demo` for example.", exists=True)
    ] = Path("demo-data"),
    module: Annotated[str, typer.Option(help="Whose documentation is matched.")] = "asyncio.locks",
    output: Annotated[Path, typer.Option(help="Folder of the pictures.")] = PICTURES,
) -> None:
    """Write page-light.png and page-dark.png."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / f"{module}.md"
        file.write_text(render_module(module), encoding="utf-8")
        with serving(folder, data, None, alignment_budget_ms=_BUDGET_MS) as server:
            for picture in take_pictures(server.url, file, output):
                print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)

"""Pictures of the page of a comparison, for the README: `python -m benchmarks.picture_report`.

The page is the one that `longmatch compare --html` writes, of two modules of Python's standard
library that are documented alike. Needs Chromium. The fonts are those of the machine: the pictures
in the repository were taken with P052 and Inter (Debian: fonts-urw-base35, fonts-inter).
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.browser import Browser
from benchmarks.module_pages import render_module

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COMMAND = (sys.executable, "-c", "from service.cli import main; main()", "compare")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def write_page(left: str, right: str, folder: Path) -> Path:
    """Compare the documentation of two modules and return the page."""
    page = folder / "report.html"
    texts = []
    for name in (left, right):
        texts.append(folder / f"{name}.md")
        texts[-1].write_text(render_module(name), encoding="utf-8")
    subprocess.run([*COMMAND, *texts, "--html", page], check=True, stdout=subprocess.DEVNULL)
    return page


def take_pictures(page: Path, folder: Path, passage: int) -> list[Path]:
    """Write a picture of a page in each scheme, one of its passages chosen."""
    pictures = [folder / f"report-{scheme}.png" for scheme in SCHEMES]
    with Browser(1280, 840) as browser:
        for scheme, picture in zip(SCHEMES, pictures, strict=True):
            browser.prefer(scheme=scheme, prefers_reduced_motion="reduce")
            browser.open(f"{page.as_uri()}#l{passage}")
            browser.wait_until("document.querySelector('.n.on') !== null")
            browser.screenshot(picture)
    return pictures


def main(
    left: Annotated[str, typer.Option(help="A module.")] = "asyncio.locks",
    right: Annotated[str, typer.Option(help="Another.")] = "threading",
    passage: Annotated[int, typer.Option(min=1, help="The passage that is chosen.")] = 3,
    output: Annotated[Path, typer.Option(help="Folder of the pictures.")] = PICTURES,
) -> None:
    """Write report-light.png and report-dark.png."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for picture in take_pictures(write_page(left, right, Path(folder)), output, passage):
            print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)

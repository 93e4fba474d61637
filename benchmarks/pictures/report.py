"""Screenshots of the comparison page, for the README: `python -m benchmarks.pictures.report`.

The page is the one that `longmatch compare --html` writes, for two modules of Python's standard
library with similar documentation. Needs Chromium. It uses the installed fonts: the
pictures in the repository were taken with P052 and Inter (Debian: fonts-urw-base35, fonts-inter).
"""

import inspect
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer
from playwright.sync_api import ViewportSize

from tests.tools.browser import open_chromium

# Within a paragraph; a line that is indented, or that begins a list, stays one.
_LINE_END = re.compile(r"(?<=\S)\n(?=\w)")


def render_module(name: str) -> str:
    """Return a page: the module's documentation, and a section for each of its public classes."""
    module = import_module(name)
    parts = [f"# {name}", _documentation(module)]
    for title in getattr(module, "__all__", vars(module)):
        member = getattr(module, title)
        if inspect.isclass(member) and member.__module__ == name:
            parts += [f"## {title}", _documentation(member), *_methods(member)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _methods(owner: type) -> list[str]:
    """Return the public functions of a class, each with its documentation."""
    return [
        f"{name}{inspect.signature(member)}\n\n{_documentation(member)}"
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and not name.startswith("_") and member.__doc__
    ]


def _documentation(member: object) -> str:
    return _LINE_END.sub(" ", inspect.getdoc(member) or "").strip()


PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
COMMAND = (sys.executable, "-c", "from service.cli.main import main; main()", "compare")
WINDOW: ViewportSize = {"width": 1280, "height": 840}
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
    with open_chromium() as browser:
        tab = browser.new_page(viewport=WINDOW, reduced_motion="reduce")
        for scheme, picture in zip(SCHEMES, pictures, strict=True):
            tab.emulate_media(color_scheme=scheme)
            tab.goto("about:blank")
            tab.goto(f"{page.as_uri()}#l{passage}")
            tab.wait_for_selector(".n.on")
            tab.screenshot(path=picture)
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

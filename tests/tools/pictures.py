"""The screenshots of the README, with Chromium.

    python -m tests.tools.pictures page
    python -m tests.tools.pictures report

`page` is the page at /: a real server serves the index that `make demo` makes, and a file is
matched with it, the documentation of one of Python's modules. `report` is the page that `longmatch
compare --html` writes, for two modules of Python's standard library with similar documentation. It
uses the installed fonts: the pictures in the repository were taken with P052 and Inter (Debian:
fonts-urw-base35, fonts-inter). Pictures have few colours, so that they stay small.
"""

import inspect
import io
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer
from PIL import Image
from playwright.sync_api import ViewportSize

from tests.tools.browser import open_chromium
from tests.tools.process_fixtures import serving

PAGE_WINDOW = (1280, 760)
COLOURS = 96
MOST_BYTES = 150_000
_BUDGET_MS = 60_000  # a loaded machine aligns the same as an idle one
_WAIT_MS = 120_000

app = typer.Typer(add_completion=False, help=__doc__)

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
REPORT_WINDOW: ViewportSize = {"width": 1280, "height": 840}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def write_report(left: str, right: str, folder: Path) -> Path:
    """Compare the documentation of two modules and return the page."""
    page = folder / "report.html"
    texts = []
    for name in (left, right):
        texts.append(folder / f"{name}.md")
        texts[-1].write_text(render_module(name), encoding="utf-8")
    subprocess.run([*COMMAND, *texts, "--html", page], check=True, stdout=subprocess.DEVNULL)
    return page


def take_report_pictures(page: Path, folder: Path, passage: int) -> list[Path]:
    """Write a picture of a page in each scheme, one of its passages chosen."""
    pictures = [folder / f"report-{scheme}.png" for scheme in SCHEMES]
    with open_chromium() as browser:
        tab = browser.new_page(viewport=REPORT_WINDOW, reduced_motion="reduce")
        for scheme, picture in zip(SCHEMES, pictures, strict=True):
            tab.emulate_media(color_scheme=scheme)
            tab.goto("about:blank")
            tab.goto(f"{page.as_uri()}#l{passage}")
            tab.wait_for_selector(".n.on")
            tab.screenshot(path=picture)
    return pictures


def take_page_pictures(address: str, file: Path, folder: Path) -> list[Path]:
    """Match a file with the server at an address, and write a picture in each scheme."""
    pictures = [folder / f"page-{scheme}.png" for scheme in SCHEMES]
    width, height = PAGE_WINDOW
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


@app.command("page")
def write_page_pictures(
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
            for picture in take_page_pictures(server.url, file, output):
                typer.echo(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


@app.command("report")
def write_report_pictures(
    left: Annotated[str, typer.Option(help="A module.")] = "asyncio.locks",
    right: Annotated[str, typer.Option(help="Another.")] = "threading",
    passage: Annotated[int, typer.Option(min=1, help="The passage that is chosen.")] = 3,
    output: Annotated[Path, typer.Option(help="Folder of the pictures.")] = PICTURES,
) -> None:
    """Write report-light.png and report-dark.png."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for picture in take_report_pictures(
            write_report(left, right, Path(folder)), output, passage
        ):
            typer.echo(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    app()

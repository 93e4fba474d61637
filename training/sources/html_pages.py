"""Pages of documentation in HTML: each is a document, linked to those that its text links to.

Made for what Sphinx writes, which most Python packages use; other pages are read as well.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml.html import HtmlElement

from index.corpus.formats.content import MAX_FILE_BYTES, shorten
from index.corpus.formats.html import decode_html, element_text, parse_markup
from index.document import SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.sources.linked_corpus import LinkedDocument, Mention, without_overlaps

_SUFFIXES = (".html", ".htm")
# Written by Sphinx for every project: indexes, search, listings of source code.
_NO_PAGE = re.compile(
    r"(^|/)((gen|mod|py-mod)index[^/]*\.html?|search\.html?|_(modules|static)/.*)$"
)
_CONTENT = (
    *("//*[@role='main']", "//main", "//article"),
    *("//div[contains(concat(' ', normalize-space(@class), ' '), ' body ')]", "//body"),
)
_NAVIGATION = frozenset({"nav", "aside", "footer"})
_NAVIGATION_CLASSES = frozenset(
    {"headerlink", "viewcode-link", "toctree-wrapper", "contents", "sphinxsidebar", "related"}
    | {"breadcrumb", "breadcrumbs", "prev-next-area", "rst-footer-buttons", "sk-sidebar-wrapper"}
)
_START, _END = "\ufdd0", "\ufdd1"  # noncharacters: around the text of links to other pages
_MARKS = re.compile(f"[{_START}{_END}]")


def read_html_pages(folders: Sequence[Path], progress: Progress) -> list[LinkedDocument]:
    """Read the pages of folders, with the links in their content to other pages of the folder.

    Navigation, tables of contents, indexes and listings of source code are left out, and so are the
    links in them. The text of a link is a mention. A symbolic link counts as the page it leads to.
    """
    documents = []
    progress.started("reading pages", None, unit="pages")
    for folder in folders:
        pages = [path for path in sorted(folder.rglob("*")) if _is_page(folder, path)]
        ids = {path.resolve(): _page_id(folder, path) for path in pages if not path.is_symlink()}
        for path in pages:
            if not path.is_symlink():
                try:
                    documents.append(_read_page(path, ids))
                except CorpusError as error:
                    progress.skipped(SkippedInput(ids[path.resolve()], str(error)))
                progress.advanced(1)
    return documents


def _is_page(folder: Path, path: Path) -> bool:
    name = path.relative_to(folder).as_posix()
    is_html = name.lower().endswith(_SUFFIXES) and _NO_PAGE.search(name) is None
    return is_html and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES


def _page_id(folder: Path, path: Path) -> str:
    return f"{folder.name}/{path.relative_to(folder).as_posix()}"


def _read_page(path: Path, ids: Mapping[Path, str]) -> LinkedDocument:
    page = parse_markup(decode_html(path.read_bytes()).text)
    content = next((found[0] for found in map(page.xpath, _CONTENT) if found), page)
    for unwanted in list(filter(_is_navigation, content.iterdescendants("*"))):
        unwanted.drop_tree()
    targets = list(_mark_links(content, path.resolve(), ids))
    text, mentions = _take_marks(element_text(content), targets)
    heading = content.find(".//h1")
    title = page.find(".//title") if heading is None else heading
    return LinkedDocument(
        id=ids[path.resolve()],
        title=shorten(_MARKS.sub("", title.text_content()) if title is not None else ""),
        text=text,
        links=frozenset(targets),
        mentions=without_overlaps(mentions),
    )


def _is_navigation(element: HtmlElement) -> bool:
    return (
        element.tag in _NAVIGATION
        or element.get("role") == "navigation"
        or not _NAVIGATION_CLASSES.isdisjoint(element.get("class", "").split())
    )


def _mark_links(content: HtmlElement, path: Path, ids: Mapping[Path, str]) -> Iterator[str]:
    """Mark the text of links to other pages, and yield their targets in the same order."""
    for link in content.iterfind(".//a[@href]"):
        target = ids.get(_linked_path(path, link.get("href")), "")
        if target and target != ids[path]:
            link.text = _START + (link.text or "")
            if len(link):
                link[-1].tail = (link[-1].tail or "") + _END
            else:
                link.text += _END
            yield target


def _linked_path(path: Path, href: str) -> Path:
    """Return the path that a link leads to; of a link to elsewhere, the folder of the page."""
    try:
        parts = urlsplit(href)
        if not (parts.scheme or parts.netloc or not parts.path):
            return (path.parent / unquote(parts.path)).resolve()
    except (ValueError, OSError):  # a malformed address, or a name that no file can have
        pass
    return path.parent


def _take_marks(text: str, targets: Sequence[str]) -> tuple[str, list[Mention]]:
    """Return a text without marks, and the mentions that they were around."""
    pieces: list[str] = []
    mentions: list[Mention] = []
    opened: list[tuple[int, str]] = []
    begin = length = number = 0
    for mark in _MARKS.finditer(text):
        pieces.append(text[begin : mark.start()])
        length += mark.start() - begin
        begin = mark.end()
        if mark[0] == _START:
            opened.append((length, targets[number]))
            number += 1
        else:
            start, target = opened.pop()
            if start < length:
                mentions.append(Mention(start, length, target))
    return "".join([*pieces, text[begin:]]), mentions

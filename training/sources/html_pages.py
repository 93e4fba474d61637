"""Pages of documentation in HTML: each is a document, linked to those that its text links to.

Made for what Sphinx writes, which most Python packages use; other pages are read as well.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from lxml.html import HtmlElement

from index.corpus.formats.content import shorten
from index.corpus.formats.html import decode_html, element_text, parse_markup
from index.document import SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.sources.linked_document import LinkedDocument, Mention, without_overlaps
from training.sources.packages import Package, PackagedFile, read_files

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


def read_html_pages(packages: Sequence[Package], progress: Progress) -> list[LinkedDocument]:
    """Read the pages of packages, with the links in their content to other pages of the package.

    Navigation, tables of contents, indexes and listings of source code are left out, and so are the
    links in them. The text of a link is a mention.

    Args:
        packages: as `open_packages` returns them.
        progress: is notified.

    Raises:
        CorpusError: a package is damaged.
    """
    documents = []
    progress.started("reading pages", None, unit="pages")
    for package in packages:
        files = list(read_files(package, _is_page))
        links = {one.path: one.link for one in files if one.link}
        paths = {one.path for one in files if not one.link}
        ids = {path: _page_id(package, path) for path in paths}
        ids |= {path: ids[target] for path, target in links.items() if target in paths}
        for one in files:
            if not one.link:
                try:
                    documents.append(_read_page(package, one, ids))
                except CorpusError as error:
                    progress.skipped(SkippedInput(ids[one.path], str(error)))
                progress.advanced(1)
    return documents


def _is_page(path: str) -> bool:
    return path.lower().endswith(_SUFFIXES) and _NO_PAGE.search(path) is None


def _page_id(package: Package, path: str) -> str:
    return f"{package.name}/{path}" if not package.group else path.removeprefix("usr/share/doc/")


def _read_page(package: Package, file: PackagedFile, ids: Mapping[str, str]) -> LinkedDocument:
    page = parse_markup(decode_html(file.data))
    content = next((found[0] for found in map(page.xpath, _CONTENT) if found), page)
    for unwanted in [one for one in content.iterdescendants("*") if _is_navigation(one)]:
        unwanted.drop_tree()
    targets = list(_mark_links(content, file.path, ids))
    text, mentions = _take_marks(element_text(content), targets)
    heading = content.find(".//h1")
    title = page.find(".//title") if heading is None else heading
    return LinkedDocument(
        id=ids[file.path],
        title=shorten(_MARKS.sub("", title.text_content()) if title is not None else ""),
        text=text,
        links=frozenset(targets),
        mentions=without_overlaps(mentions),
        group=package.group,
        metadata=package.metadata,
    )


def _is_navigation(element: HtmlElement) -> bool:
    return (
        element.tag in _NAVIGATION
        or element.get("role") == "navigation"
        or not _NAVIGATION_CLASSES.isdisjoint(element.get("class", "").split())
    )


def _mark_links(content: HtmlElement, path: str, ids: Mapping[str, str]) -> Iterator[str]:
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


def _linked_path(path: str, href: str) -> str:
    """Return the path of the page that a link in a page leads to; "" if it leads elsewhere."""
    try:
        parts = urlsplit(href)
    except ValueError:  # a malformed address
        return ""
    if parts.scheme or parts.netloc or not parts.path:
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(parts.path)))


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

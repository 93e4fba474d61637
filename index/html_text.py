"""What a reader sees of an HTML page, as plain text with its paragraphs kept apart."""

import re
import warnings
from collections.abc import Iterator

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import CData, NavigableString, PageElement, Tag

_LEFT_OUT = frozenset({"script", "style", "template", "title"})
_PARAGRAPH = re.compile(
    "address|article|aside|blockquote|body|caption|dd|details|dialog|div|dl|dt|fieldset|figcaption"
    "|figure|footer|form|h[1-6]|head|header|hgroup|hr|html|legend|main|nav|ol|p|pre|section|summary"
    "|table|ul"
)
_LINES = frozenset({"br", "li", "tr", "option"})
_CELLS = frozenset({"td", "th"})
_WHITE_SPACE = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n{3,}")


def declared_encoding(data: bytes) -> str:
    """Return the encoding that a page names in its XML declaration or meta tag, or ""."""
    return EncodingDetector.find_declared_encoding(data, is_html=True) or ""


def parse_html(markup: str) -> tuple[str, str]:
    """Return the title and the text of a page.

    Scripts, styles, templates and comments are left out. Block elements are kept apart by an empty
    line, list items and table rows by a line end.
    """
    with warnings.catch_warnings():
        # Beautiful Soup warns of markup that looks like XML, a path or an address; it reads it.
        warnings.simplefilter("ignore")
        soup = BeautifulSoup(markup, "html.parser")
    title = soup.title.get_text() if soup.title else ""
    lines = (" ".join(line.split()) for line in "".join(_pieces(soup)).split("\n"))
    return title, _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def _pieces(soup: BeautifulSoup) -> Iterator[str]:
    # A stack, not recursion: pages nest elements deeper than Python calls can. A plain string in it
    # is to be given as it is.
    stack: list[PageElement | str] = [soup]
    while stack:
        node = stack.pop()
        if isinstance(node, Tag):
            stack.extend(reversed(_opened(node)))
        elif type(node) in (NavigableString, CData):  # no comment, no declaration
            yield _WHITE_SPACE.sub(" ", str(node))
        elif type(node) is str:
            yield node


def _opened(tag: Tag) -> list[PageElement | str]:
    """Return the content of an element between what separates it from its neighbours."""
    if tag.name in _LEFT_OUT:
        return []
    if tag.name == "pre":
        return ["\n\n", tag.get_text(), "\n\n"]
    if _PARAGRAPH.fullmatch(tag.name):
        return ["\n\n", *tag.contents, "\n\n"]
    if tag.name in _LINES:
        return ["\n", *tag.contents]
    return [" ", *tag.contents] if tag.name in _CELLS else list(tag.contents)

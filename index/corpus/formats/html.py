"""HTML, read in one pass without a tree: time and memory are linear in the size of the page."""

import re
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import webencodings
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, tostring

from index.corpus.formats.content import (
    FileText,
    described,
    is_generic,
    plain_title,
    read_bytes,
)
from index.corpus.formats.plain import BYTE_ORDER_MARKS, Decoded, decode_text
from index.errors import CorpusError

_LEFT_OUT = frozenset({"script", "style", "template", "title"})
_PARAGRAPHS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "dialog"}
    | {"div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3"}
    | {"h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "legend", "main", "nav", "ol"}
    | {"p", "pre", "section", "summary", "table", "ul"}
)
_OPENED = dict.fromkeys(_PARAGRAPHS, "\n\n") | dict.fromkeys(("br", "li", "tr", "option"), "\n")
_OPENED |= dict.fromkeys(("td", "th"), " ")
_WHITE_SPACE = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n{3,}")

# Without `huge_tree`, text of over 10 MB in one element and names of over 50 kB are refused.
_OPTIONS: dict[str, Any] = {"encoding": "utf-8", "huge_tree": True}

_DECLARED_BYTES = 65_536
_XML_ENCODING = re.compile(rb"""\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)""")
_META_CHARSET = re.compile(rb"""<meta\s[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.I)


class PageText:
    """Collects the text and the title of a page from its elements, as a parser finds them.

    Scripts, styles, templates and comments are left out. Block elements are separated by an empty
    line, list items and table rows by a line break.
    """

    def __init__(self) -> None:
        self.title: str | None = None
        self.text = ""  # at the end
        self.fields: dict[str, str] = {}  # of its meta elements
        self._title: list[str] = []
        self._text = StringIO()  # a list of pieces costs more for each than its characters
        self._left_out: list[str] = []  # open elements, from the outermost that is left out
        self._preformatted = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        if self._left_out or tag in _LEFT_OUT:
            self._left_out.append(tag)
            return
        self._preformatted += tag == "pre"
        if tag == "meta":
            name = attributes.get("name") or attributes.get("property") or ""
            self.fields.setdefault(name.lower(), attributes.get("content") or "")
        if tag in _OPENED:
            self._text.write(_OPENED[tag])

    def end(self, tag: str) -> None:
        """An element ends."""
        if self._left_out:
            self._left_out.pop()
            if tag == "title" and self.title is None:
                self.title = "".join(self._title)
            return
        self._preformatted -= tag == "pre"
        if tag in _PARAGRAPHS:
            self._text.write("\n\n")

    def data(self, text: str) -> None:
        """A piece of text within the innermost element."""
        if not self._left_out:
            self._text.write(text if self._preformatted else _WHITE_SPACE.sub(" ", text))
        elif self.title is None and self._left_out[-1] == "title":
            self._title.append(text)

    def close(self) -> None:
        """The page ends."""
        lines = (" ".join(line.split()) for line in self._text.getvalue().split("\n"))
        self.text = _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def parse_html(markup: str) -> PageText:
    """Return what a page has of text, a title and fields."""
    page = PageText()
    parser = etree.HTMLParser(target=page, **_OPTIONS)
    parser.feed(_parsable(markup))
    parser.close()
    return page


def parse_markup(markup: str) -> HtmlElement:
    """Return the elements of a page as a tree, which takes much more memory than its text.

    Raises:
        CorpusError: elements are nested more deeply than the tree can be.
    """
    parser = HTMLParser(**_OPTIONS)
    root: HtmlElement = etree.fromstring(_parsable(markup), parser)
    if any(entry.level == etree.ErrorLevels.FATAL for entry in parser.error_log):
        raise CorpusError("has elements that are nested too deeply")
    return root


def element_text(element: HtmlElement) -> str:
    """Return the text of an element and those in it, as `parse_html` that of a page."""
    return parse_html(tostring(element, encoding="unicode", with_tail=False)).text


def _parsable(markup: str) -> bytes:
    # The tag, which a page may repeat, makes a page without any element one, too.
    return b"<html>" + markup.encode("utf-8", "replace")


def declared_encoding(data: bytes) -> str:
    """Return the encoding that a page declares (XML declaration or meta tag), or ""."""
    head = data[:_DECLARED_BYTES]
    found = _XML_ENCODING.match(head) or _META_CHARSET.search(head)
    return found[1].decode("ascii", "replace").lower() if found else ""


# As the web's encodings are, where Python's of that name have fewer characters.
_WIDER = {"shift_jis": "cp932", "euc-kr": "cp949", "gbk": "gb18030", "big5": "big5hkscs"}
_MOST_REPLACED = 0.01


def decode_html(data: bytes) -> Decoded:
    """Decode in the encoding that the page declares, by the labels of the web; else as any text.

    A page in valid UTF-8 with a character beyond ASCII is UTF-8, even if it declares an encoding
    of single bytes, since every text is valid in these.

    Raises:
        CorpusError: it is in neither.
    """
    declared = webencodings.lookup(declared_encoding(data))
    marked = data.startswith(tuple(mark for mark, _ in BYTE_ORDER_MARKS))
    if declared is None or declared.name.startswith(("utf", "x-user")) or marked:
        return decode_text(data)
    codec = _WIDER.get(declared.name, declared.codec_info.name)
    single = declared.name.startswith(("windows", "iso-8859", "koi8", "ibm", "mac", "x-mac"))
    if single and not data.isascii():
        with suppress(UnicodeDecodeError):
            return Decoded(data.decode("utf-8"))
    text = data.decode(codec, "replace")
    if text.count("\ufffd") <= _MOST_REPLACED * len(text):
        return Decoded(text)
    try:
        return decode_text(data)
    except CorpusError as error:
        raise CorpusError(f"is neither UTF-8 nor {declared.name}, which it declares") from error


_AUTHORS = ("author", "citation_author", "dc.creator")
_DATES = (
    *("date", "citation_date", "citation_publication_date", "dc.date", "dcterms.date"),
    "article:published_time",
)


def read_html(path: Path) -> FileText:
    """Read a page; a title such as "Untitled" gives way to the first line."""
    markup, remark = decode_html(read_bytes(path))
    page = parse_html(markup)
    title, fields = page.title or "", page.fields
    return FileText(
        plain_title(page.text) if is_generic(title) else title,
        page.text,
        described(
            next((fields[name] for name in _AUTHORS if name in fields), ""),
            next((fields[name] for name in _DATES if name in fields), ""),
        ),
        (remark,) if remark else (),
    )

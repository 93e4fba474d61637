"""The text and the title of one file: plain text, Markdown, reStructuredText, HTML or PDF."""

import codecs
import contextlib
import re
import string
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import CData, NavigableString, PageElement, Tag

from index.errors import CorpusError

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
    """Return the encoding that a page declares (XML declaration or meta tag), or ""."""
    return EncodingDetector.find_declared_encoding(data, is_html=True) or ""


def parse_html(markup: str) -> tuple[str, str]:
    """Return the title and the text of a page.

    Scripts, styles, templates and comments are left out. Block elements are separated by an empty
    line, list items and table rows by a line break.
    """
    soup = parse_markup(markup)
    return soup.title.get_text() if soup.title else "", element_text(soup)


def parse_markup(markup: str) -> BeautifulSoup:
    """Return the elements of a page."""
    with warnings.catch_warnings():
        # Beautiful Soup warns of markup that looks like XML, a path or a URL, but reads it.
        warnings.simplefilter("ignore")
        return BeautifulSoup(markup, "html.parser")


def element_text(element: Tag) -> str:
    """Return the text of an element, as `parse_html` that of a page."""
    lines = (" ".join(line.split()) for line in "".join(_pieces(element)).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def _pieces(element: Tag) -> Iterator[str]:
    # A stack, not recursion: pages nest elements deeper than Python can recurse. A plain string on
    # it is yielded as it is.
    stack: list[PageElement | str] = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, Tag):
            stack.extend(reversed(_opened(node)))
        elif type(node) in (NavigableString, CData):  # not a comment or declaration
            yield _WHITE_SPACE.sub(" ", str(node))
        elif type(node) is str:
            yield node


def _opened(tag: Tag) -> list[PageElement | str]:
    """Return the content of an element with the separators around it."""
    if tag.name in _LEFT_OUT:
        return []
    if tag.name == "pre":
        return ["\n\n", tag.get_text(), "\n\n"]
    if _PARAGRAPH.fullmatch(tag.name):
        return ["\n\n", *tag.contents, "\n\n"]
    if tag.name in _LINES:
        return ["\n", *tag.contents]
    return [" ", *tag.contents] if tag.name in _CELLS else list(tag.contents)


MAX_TITLE = 200
_HEAD_CHARACTERS = 65_536


def shorten(title: str) -> str:
    """Return a title on one line, of at most `MAX_TITLE` characters."""
    line = " ".join(title[:_HEAD_CHARACTERS].split())
    line = "".join(character for character in line if character.isprintable())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…"


def first_line(text: str) -> str:
    """Return the first line that has a letter or a digit, or an empty string."""
    return _first_with_words(text[:_HEAD_CHARACTERS].splitlines())


def markdown_title(text: str) -> str:
    """Return the title of the front matter, else the first heading, else the first line."""
    lines = text[:_HEAD_CHARACTERS].splitlines()
    front, body = _split_front_matter(lines)
    for line in front:
        key, _, value = line.partition(":")
        if key.strip().lower() == "title" and _has_words(value):
            return value.strip().strip("\"'")
    return _first_markdown_heading(body) or _first_with_words(body)


def rst_title(text: str) -> str:
    """Return the first line that is underlined over its whole length, else the first line."""
    lines = text[:_HEAD_CHARACTERS].splitlines()
    for line, below in pairwise(lines):
        rule = below.rstrip()
        if _is_rule(rule, string.punctuation) and len(rule) >= len(line.rstrip()):
            heading = line.strip()
            if _has_words(heading):
                return heading
    return _first_with_words(lines)


def _split_front_matter(lines: list[str]) -> tuple[list[str], list[str]]:
    if lines and lines[0].strip() == "---":
        for end, line in enumerate(lines[1:], start=1):
            if line.strip() in ("---", "..."):
                return lines[1:end], lines[end + 1 :]
    return [], lines


def _first_markdown_heading(lines: list[str]) -> str:
    fenced = False
    for above, line in pairwise(["", *lines]):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced:
            continue
        elif _is_rule(stripped, "=-") and _has_words(above):
            return above.strip()
        elif stripped.startswith("#"):
            heading = stripped.lstrip("#")
            if heading[0:1].isspace() and _has_words(heading):
                return heading.rstrip("#").strip()
    return ""


def _first_with_words(lines: list[str]) -> str:
    return next((line.strip() for line in lines if _has_words(line)), "")


def _has_words(line: str) -> bool:
    return any(character.isalnum() for character in line)


def _is_rule(line: str, characters: str) -> bool:
    return len(line) >= 2 and line[0] in characters and line == line[0] * len(line)


MAX_FILE_BYTES = 64 * 2**20

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# PDFium is not thread-safe: two threads in it, even on two files, can crash the process.
_PDFIUM = threading.Lock()
_PDFIUM_HYPHEN = "\x02"  # marks a hyphen at the end of a line that is not part of the word


@dataclass(frozen=True, slots=True)
class FileText:
    """Text and title of a file; the title is the file's stem where the text has none."""

    title: str
    text: str


def read_file_text(path: Path) -> FileText:
    """Read one file of a kind in `FILE_SUFFIXES`.

    Raises:
        CorpusError: the file is too large, damaged, encrypted, or not in an encoding that is known
            from the file itself. The message does not name the file.
    """
    try:
        if not path.is_file():
            raise CorpusError("is not a regular file, or a link that leads nowhere")
        content = _READERS[path.suffix.lower()](path)
    except OSError as error:
        raise CorpusError(f"cannot be read: {error.strerror or error}") from error
    return FileText(title=shorten(content.title) or shorten(path.stem), text=content.text)


def decode_text(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark.

    Raises:
        CorpusError: names the first byte, counted from 0, that is not part of a character.
    """
    mark, encoding = next(
        (entry for entry in _BYTE_ORDER_MARKS if data.startswith(entry[0])), (b"", "utf-8")
    )
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        position = error.start + len(mark)
        raise CorpusError(f"is not {encoding[:6].upper()} at byte {position}") from error


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise CorpusError(f"is larger than {MAX_FILE_BYTES} bytes")
    return data


def _read_plain(path: Path) -> FileText:
    text = decode_text(_read_bytes(path))
    return FileText(first_line(text), text)


def _read_markdown(path: Path) -> FileText:
    text = decode_text(_read_bytes(path))
    return FileText(markdown_title(text), text)


def _read_rst(path: Path) -> FileText:
    text = decode_text(_read_bytes(path))
    return FileText(rst_title(text), text)


def _read_html(path: Path) -> FileText:
    title, text = parse_html(decode_html(_read_bytes(path)))
    return FileText(title if title.strip() else first_line(text), text)


def decode_html(data: bytes) -> str:
    """Decode as any text, or else in the encoding that the page declares.

    Raises:
        CorpusError: it is in neither.
    """
    try:
        return decode_text(data)
    except CorpusError:
        encoding = declared_encoding(data)
        if not encoding or encoding.lower().startswith("utf"):
            raise
        try:
            return data.decode(encoding)
        except (LookupError, UnicodeError) as error:
            raise CorpusError(f"is neither UTF-8 nor {encoding}, which it declares") from error


def _read_pdf(path: Path) -> FileText:
    # Imported here: it loads a large shared library that a corpus without PDF does not need.
    import pypdfium2

    with _PDFIUM:
        try:
            with contextlib.closing(pypdfium2.PdfDocument(path)) as pdf:
                title = pdf.get_metadata_value("Title")
                text = "\n".join(_pdf_pages(pdf))
        except pypdfium2.PdfiumError as error:
            raise CorpusError(f"is encrypted or not a readable PDF: {error}") from error
    if not text.strip():
        raise CorpusError("has no text: pages that are pictures must go through OCR first")
    return FileText(title if title.strip() else first_line(text), text)


def _pdf_pages(pdf: Any) -> Iterator[str]:
    characters = 0
    for number in range(len(pdf)):
        page = pdf[number]
        text_page = page.get_textpage()
        text: str = text_page.get_text_bounded()
        text_page.close()
        page.close()
        characters += len(text)
        if characters > MAX_FILE_BYTES:
            raise CorpusError(f"has more than {MAX_FILE_BYTES} characters of text")
        yield text.replace("\r\n", "\n").replace(_PDFIUM_HYPHEN, "")


_READERS: Mapping[str, Callable[[Path], FileText]] = {
    ".txt": _read_plain,
    ".md": _read_markdown,
    ".rst": _read_rst,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
}
FILE_SUFFIXES = tuple(_READERS)

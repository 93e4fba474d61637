"""The text and the title of one file: plain text, Markdown, reStructuredText, HTML or PDF."""

import codecs
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index.errors import CorpusError
from index.titles import first_line, markdown_title, rst_title, shorten

MAX_FILE_BYTES = 64 * 2**20

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# PDFium is not thread-safe: two threads in it at once, even on two files, can crash the process.
_PDFIUM = threading.Lock()
_PDFIUM_HYPHEN = "\x02"  # stands where a line ended in a hyphen that is no part of the word


@dataclass(frozen=True, slots=True)
class FileText:
    """What was read from a file; the title is the file's stem where the text gives none."""

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
        CorpusError: naming the first byte, counted from 0, that is no part of a character.
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
    # Imported here: Beautiful Soup takes a tenth of a second that most commands do not need.
    from index.html_text import parse_html

    title, text = parse_html(_decode_html(_read_bytes(path)))
    return FileText(title if title.strip() else first_line(text), text)


def _decode_html(data: bytes) -> str:
    """Decode as any text, else as the page itself says: old pages are seldom UTF-8 and say so."""
    from index.html_text import declared_encoding

    try:
        return decode_text(data)
    except CorpusError:
        encoding = declared_encoding(data)
        if not encoding or encoding.lower().startswith("utf"):
            raise
        try:
            return data.decode(encoding)
        except (LookupError, UnicodeError) as error:
            raise CorpusError(f"is neither UTF-8 nor {encoding}, as it says") from error


def _read_pdf(path: Path) -> FileText:
    # Imported here: it loads a large shared library that a corpus without PDF does not need.
    import pypdfium2

    with _PDFIUM:
        try:
            with contextlib.closing(pypdfium2.PdfDocument(path)) as pdf:
                title = pdf.get_metadata_value("Title")
                text = "\n".join(_pdf_pages(pdf))
        except pypdfium2.PdfiumError as error:
            raise CorpusError(f"is encrypted or no readable PDF: {error}") from error
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

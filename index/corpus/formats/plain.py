"""Plain text, Markdown and reStructuredText, in UTF-8 or UTF-16."""

import codecs
from collections.abc import Callable
from pathlib import Path

from index.corpus.formats.content import FileText, read_bytes
from index.corpus.formats.titles import first_line, markdown_title, rst_title
from index.errors import CorpusError

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


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


def read_plain(path: Path) -> FileText:
    """Read a text; its title is its first line."""
    return _read(path, first_line)


def read_markdown(path: Path) -> FileText:
    """Read Markdown; its text keeps the markup."""
    return _read(path, markdown_title)


def read_rst(path: Path) -> FileText:
    """Read reStructuredText; its text keeps the markup."""
    return _read(path, rst_title)


def _read(path: Path, find_title: Callable[[str], str]) -> FileText:
    text = decode_text(read_bytes(path))
    return FileText(find_title(text), text)

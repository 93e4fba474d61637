"""Plain text, Markdown and reStructuredText, in UTF-8 or UTF-16."""

import codecs
from collections.abc import Callable
from pathlib import Path

from index.corpus.formats.content import FileText, first_line, markdown_title, read_bytes, rst_title
from index.errors import CorpusError

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


_SAMPLE_BYTES = 65_536
_LEAST_SPACES = 0.01  # of the characters of UTF-16 without a byte order mark
_MOST_CONTROLS = 0.02
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))


def decode_text(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark or with spaces that show it.

    Raises:
        CorpusError: names the first byte, counted from 0, that is not part of a character; or it
            has too many control characters for a text.
    """
    mark, encoding = next(
        (entry for entry in _BYTE_ORDER_MARKS if data.startswith(entry[0])), (b"", "")
    )
    encoding = encoding or _guess_encoding(data)
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        position = error.start + len(mark)
        raise CorpusError(f"is not {encoding[:6].upper()} at byte {position}") from error
    if _share_of_controls(text) > _MOST_CONTROLS:
        raise CorpusError(
            "is not text but has control characters: it is binary, or in an encoding that is "
            "neither UTF-8 nor UTF-16"
        )
    return text


def _guess_encoding(data: bytes) -> str:
    """Return UTF-16 if data without a byte order mark has spaces of two bytes, else UTF-8."""
    if len(data) % 2 or b"\0" not in data[:_SAMPLE_BYTES]:
        return "utf-8"
    spaces = {
        encoding: sum(map(data[:_SAMPLE_BYTES].decode(encoding, "replace").count, " \n\r"))
        for encoding in ("utf-16-le", "utf-16-be")
    }
    best = max(spaces, key=lambda encoding: spaces[encoding])
    return best if spaces[best] >= _LEAST_SPACES * min(len(data), _SAMPLE_BYTES) / 2 else "utf-8"


def _share_of_controls(text: str) -> float:
    sample = text[:_SAMPLE_BYTES]
    data = sample.encode("utf-8", "replace")
    return (len(data) - len(data.translate(None, _CONTROLS))) / max(len(sample), 1)


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

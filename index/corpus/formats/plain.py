"""Plain text, Markdown and reStructuredText, in UTF-8, UTF-16 or an encoding that is guessed."""

import codecs
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from index.corpus.formats.content import FileText, plain_title, read_bytes, title_and_metadata
from index.errors import CorpusError

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


_SAMPLE_BYTES = 65_536
_LEAST_SPACES = 0.01  # of the characters of UTF-16 without a byte order mark
_MOST_CONTROLS = 0.02
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))


# Where several encodings fit a text equally well, the first of these is meant.
_GUESSED = (
    *("cp1252", "cp932", "euc_jp", "cp949", "gb18030", "big5", "cp1251", "koi8_r", "cp1250"),
    *("cp1253", "cp1254", "cp1255", "cp1256", "cp874"),
)
_LEAST_LETTERS = 3  # of a text whose encoding is guessed


class Decoded(NamedTuple):
    """A text, and what the user must know of how it was decoded, if anything."""

    text: str
    remark: str = ""


def decode_text(data: bytes) -> Decoded:
    """Decode UTF-8, UTF-16 with a byte order mark or with spaces that show it, else guess.

    Raises:
        CorpusError: names the first byte, counted from 0, that is not part of a character; or it
            has too many control characters for a text.
    """
    mark, encoding = next(
        (entry for entry in BYTE_ORDER_MARKS if data.startswith(entry[0])), (b"", "")
    )
    encoding = encoding or _guess_encoding(data)
    try:
        decoded = Decoded(data[len(mark) :].decode(encoding))
    except UnicodeDecodeError as error:
        guessed = None if mark or encoding != "utf-8" else _mended(data) or _guess(data)
        if guessed is None:
            position = error.start + len(mark)
            raise CorpusError(f"is not {encoding[:6].upper()} at byte {position}") from error
        decoded = guessed
    if _share_of_controls(decoded.text) > _MOST_CONTROLS:
        raise CorpusError(
            "is not text but has control characters: it is binary, or in an encoding that is "
            "neither UTF-8 nor UTF-16"
        )
    return decoded


def _mended(data: bytes) -> Decoded | None:
    """Decode UTF-8 with a few bytes of Windows-1252 in it, as a line from elsewhere leaves them."""
    text = data.decode("utf-8", "surrogateescape")
    mended, foreign = _ESCAPED.subn(_in_cp1252, text)
    proper = sum(character > "\x7f" for character in text) - foreign
    if foreign >= proper:
        return None
    return Decoded(mended, f"is UTF-8 but for bytes ({foreign}) that are read as windows-1252")


_ESCAPED = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8


def _in_cp1252(found: re.Match[str]) -> str:
    return found[0].encode("ascii", "surrogateescape").decode("cp1252", "replace")


def _guess(data: bytes) -> Decoded | None:
    # Imported here: few corpora need it.
    from charset_normalizer import from_bytes

    found = [
        (match.chaos, -match.coherence, _GUESSED.index(name), name)
        for match in from_bytes(data, cp_isolation=list(_GUESSED))
        for name in match.could_be_from_charset
        if name in _GUESSED
    ]
    if not found:
        return None
    name = min(found)[-1]
    text = data.decode(name, "replace")
    if sum(map(str.isalpha, text[:_SAMPLE_BYTES])) < _LEAST_LETTERS:
        return None
    return Decoded(text, f"is not UTF-8; read as {name.replace('cp125', 'windows-125')}, a guess")


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


def read_text(path: Path, heading_of: Callable[[list[str]], str] | None = None) -> FileText:
    """Read a text, which keeps its markup, if it has any, with what finds a heading in it."""
    text, remark = decode_text(read_bytes(path))
    title, about = title_and_metadata(text, heading_of) if heading_of else (plain_title(text), {})
    return FileText(title, text, about, (remark,) if remark else ())

"""Kinds of files that the extra `formats` reads, by kreuzberg."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from index.corpus.formats.content import FileText, described, is_generic, plain_title
from index.errors import CorpusError

EXTRA_SUFFIXES = (".odt", ".rtf", ".pptx", ".xlsx", ".eml", ".msg", ".doc", ".csv")
_TABLES = (".xlsx", ".csv")  # whose first line is no title


def has_extra() -> bool:
    """Return whether the extra is installed."""
    return find_spec("kreuzberg") is not None


def read_extra(path: Path) -> FileText:
    """Read a file of a kind in `EXTRA_SUFFIXES`.

    The title is that of the properties, or the subject of a mail, else the first line.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text.
    """
    import kreuzberg

    try:
        found = kreuzberg.extract_file_sync(path)
    except kreuzberg.KreuzbergError as error:
        kind = path.suffix[1:].upper()
        raise CorpusError(f"is encrypted or not a readable {kind}: {error}") from error
    text = found.content
    fields: Mapping[str, Any] = found.metadata
    title = str(fields.get("title") or fields.get("subject") or "")
    if is_generic(title):
        title = "" if path.suffix.lower() in _TABLES else plain_title(text)
    author = ", ".join(fields.get("authors") or ()) or str(fields.get("from_email") or "")
    return FileText(title, text, described(author, _date(str(fields.get("created_at") or ""))))


def _date(text: str) -> str:
    """Return a date, also one of a mail (RFC 5322), as ISO 8601."""
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except ValueError:
        return text

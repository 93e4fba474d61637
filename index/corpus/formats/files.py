"""The kinds of files that give one document each, and what reads them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from index.corpus.formats.content import (
    MAX_TEXT_CHARACTERS,
    FileText,
    markdown_heading,
    readable_name,
    rst_heading,
    shorten,
    without_data,
)
from index.corpus.formats.extra import EXTRA_SUFFIXES, has_extra, read_extra
from index.corpus.formats.html import read_html
from index.corpus.formats.pdf import read_pdf
from index.corpus.formats.plain import read_text
from index.corpus.formats.zipped import read_docx, read_epub
from index.errors import CorpusError

_READERS: Mapping[str, Callable[[Path], FileText]] = {
    ".txt": read_text,
    ".md": partial(read_text, heading_of=markdown_heading),
    ".rst": partial(read_text, heading_of=rst_heading),
    ".html": read_html,
    ".htm": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".epub": read_epub,
}
FILE_SUFFIXES = tuple(_READERS)


def readable_suffixes() -> tuple[str, ...]:
    """Return the suffixes of the files that are read here, with those of the extra if it is."""
    return (*FILE_SUFFIXES, *EXTRA_SUFFIXES) if has_extra() else FILE_SUFFIXES


def read_file_text(path: Path) -> FileText:
    """Read one file of a kind in `readable_suffixes`, in this process and without its limits.

    The title is the file's name, made readable, where the text has none.

    Raises:
        CorpusError: the file has no text or too much, is too large, damaged, encrypted, or not in
            an encoding that is known from the file itself. The message does not name the file.
    """
    try:
        if not path.is_file():
            raise CorpusError("is not a regular file, or a link that leads nowhere")
        content = _READERS.get(path.suffix.lower(), read_extra)(path)
    except OSError as error:
        raise CorpusError(f"cannot be read: {error.strerror or error}") from error
    if len(content.text) > MAX_TEXT_CHARACTERS:
        raise CorpusError(f"has more than {MAX_TEXT_CHARACTERS} characters of text")
    title = shorten(without_data(content.title)) or readable_name(path)
    text = without_data(content.text)
    if not text.strip():
        raise CorpusError("has no text")
    return replace(content, title=title, text=text)

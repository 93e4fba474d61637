"""The kinds of files that give one document each, and what reads them; PDF by PDFium."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from index.corpus.formats.content import MAX_TEXT_CHARACTERS, FileText, first_line, shorten
from index.corpus.formats.html import read_html
from index.corpus.formats.plain import read_markdown, read_plain, read_rst
from index.corpus.formats.zipped import read_docx, read_epub
from index.errors import CorpusError

_PDFIUM_HYPHEN = "\x02"  # marks a hyphen at the end of a line that is not part of the word


def read_pdf(path: Path) -> FileText:
    """Read the text of all pages of a PDF.

    PDFium is not thread-safe, and a page can take memory and time without bound, or crash it:
    `index.corpus.file_reader` reads in a process of its own.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text or too much.
    """
    # Imported here: it loads a large shared library that a corpus without PDF does not need.
    import pypdfium2

    try:
        with contextlib.closing(pypdfium2.PdfDocument(path)) as pdf:
            title = pdf.get_metadata_value("Title")
            text = "\n".join(_pages(pdf))
    except pypdfium2.PdfiumError as error:
        raise CorpusError(f"is encrypted or not a readable PDF: {error}") from error
    if not text.strip():
        raise CorpusError("has no text: pages that are pictures must go through OCR first")
    return FileText(title if title.strip() else first_line(text), text)


def _pages(pdf: Any) -> Iterator[str]:
    characters = 0
    for number in range(len(pdf)):
        page = pdf[number]
        text_page = page.get_textpage()
        text: str = text_page.get_text_bounded()
        text_page.close()
        page.close()
        characters += len(text)
        if characters > MAX_TEXT_CHARACTERS:
            raise CorpusError(f"has more than {MAX_TEXT_CHARACTERS} characters of text")
        yield text.replace("\r\n", "\n").replace(_PDFIUM_HYPHEN, "")


_READERS: Mapping[str, Callable[[Path], FileText]] = {
    ".txt": read_plain,
    ".md": read_markdown,
    ".rst": read_rst,
    ".html": read_html,
    ".htm": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".epub": read_epub,
}
FILE_SUFFIXES = tuple(_READERS)


def read_file_text(path: Path) -> FileText:
    """Read one file of a kind in `FILE_SUFFIXES`, in this process and without its limits.

    The title is the file's stem where the text has none.

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

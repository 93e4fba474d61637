"""The kinds of files that give one document each, and what reads them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from index.corpus.formats.content import FileText
from index.corpus.formats.docx import read_docx
from index.corpus.formats.epub import read_epub
from index.corpus.formats.html import read_html
from index.corpus.formats.pdf import read_pdf
from index.corpus.formats.plain import read_markdown, read_plain, read_rst
from index.corpus.formats.titles import shorten
from index.errors import CorpusError

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

"""EPUB."""

from pathlib import Path

import pytest

from index.corpus.formats.content import FileText
from index.corpus.formats.files import read_file_text
from index.errors import CorpusError
from tests.tools.office_files import archive, epub_parts

CHAPTERS = {
    "text/two words.xhtml": '<?xml version="1.0" encoding="iso-8859-1"?><!DOCTYPE html PUBLIC '
    '"-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd"><html><head>'
    "<title>One</title></head><body><h1>First</h1><p>Text &eacute;.</p></body></html>",
    "a.xhtml": "<html><body><h1>Second</h1><p>More.</p></body></html>",
}
BOOK = epub_parts(CHAPTERS)


def write(path: Path, parts: dict[str, str | bytes]) -> Path:
    path.write_bytes(archive(parts))
    return path


def test_a_book_is_its_chapters_in_their_order(tmp_path: Path) -> None:
    content = read_file_text(write(tmp_path / "x.epub", BOOK))
    assert content == FileText("A book", "First\n\nText é.\n\nSecond\n\nMore.")


def test_a_book_without_a_title_is_called_by_its_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.epub", epub_parts(CHAPTERS, title=" "))
    assert read_file_text(path).title == "First"


ENCRYPTED = (
    '<encryption xmlns:e="e"><e:CipherReference URI="font.ttf"/>'
    '<e:CipherReference URI="OEBPS/text/two%20words.xhtml"/></encryption>'
)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"mimetype": "x"}, "has no META-INF/container.xml"),
        ({"META-INF/container.xml": "<container/>"}, "names no book"),
        (BOOK | {"META-INF/container.xml": "<!DOCTYPE c><c/>"}, "document type declaration"),
        (BOOK | {"OEBPS/book.opf": "<package"}, "OEBPS/book.opf: is not XML"),
        (BOOK | {"OEBPS/book.opf": "<package/>"}, "has no text"),
        (BOOK | {"OEBPS/a.xhtml": b"\xff"}, "OEBPS/a.xhtml: is not UTF-8 at byte 0"),
        ({name: part for name, part in BOOK.items() if "a.xhtml" not in name}, "has no OEBPS/a"),
        (BOOK | {"META-INF/encryption.xml": ENCRYPTED}, "two words.xhtml: is encrypted"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, parts: dict[str, str | bytes], message: str
) -> None:
    path = write(tmp_path / "x.epub", parts)
    with pytest.raises(CorpusError, match=message):
        read_file_text(path)


def test_a_book_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.epub").write_bytes(b"not an archive")
    with pytest.raises(CorpusError, match="is encrypted or not a readable EPUB"):
        read_file_text(tmp_path / "x.epub")


def test_a_book_whose_fonts_are_obfuscated_is_read(tmp_path: Path) -> None:
    fonts = '<encryption xmlns:e="e"><e:CipherReference URI="OEBPS/font.ttf"/></encryption>'
    path = write(tmp_path / "x.epub", BOOK | {"META-INF/encryption.xml": fonts})
    assert read_file_text(path).title == "A book"

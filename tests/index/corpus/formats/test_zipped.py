"""DOCX."""

import struct
from pathlib import Path

import pytest

from index.corpus.formats.content import FileText
from index.corpus.formats.files import read_file_text
from index.corpus.formats.zipped import MAX_PARTS_BYTES
from index.errors import CorpusError
from tests.kit.office_files import archive, docx_parts, epub_parts, paragraph

BODY = (
    paragraph("The report", "Title")
    + "<w:p><w:r><w:t>Bold</w:t></w:r><w:r><w:t>ly &amp; </w:t></w:r>"
    "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
    "<w:ins><w:r><w:t>added</w:t><w:tab/><w:t>after</w:t><w:br/><w:t>below</w:t></w:r></w:ins>"
    "<w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
    "<w:tbl><w:tr><w:tc>" + paragraph("a") + "</w:tc><w:tc>" + paragraph("b") + "</w:tc></w:tr>"
    "<w:tr><w:tc>" + paragraph("c") + "</w:tc><w:tc/></w:tr></w:tbl>"
    "<w:p><AlternateContent><Choice><w:r><w:t>box</w:t></w:r></Choice>"
    "<Fallback><w:r><w:t>box</w:t></w:r></Fallback></AlternateContent></w:p>"
)


def read(path: Path, body: str, **more: str) -> FileText:
    path.write_bytes(archive(docx_parts(body, **more)))
    return read_file_text(path)


def test_a_document_as_a_reader_sees_it(tmp_path: Path) -> None:
    content = read(tmp_path / "x.docx", BODY, notes=paragraph("A note."))
    assert content == FileText(
        "The report", "The report\n\nBoldly & added\tafter\nbelow\n\na \tb\nc\n\nbox\n\nA note."
    )


@pytest.mark.parametrize(
    ("body", "properties", "title"),
    [
        (paragraph("First.") + paragraph("Heading", "Heading1"), "", "Heading"),
        (paragraph("First.") + paragraph("Heading", "Heading1"), "Of the file", "Of the file"),
        (paragraph("First.") + paragraph("Heading", "Heading2"), "", "First."),
        (paragraph(" ", "Title") + paragraph("Heading", "Heading1"), " ", "Heading"),
        (paragraph("First.") + paragraph("Satzung", "Titel"), "Microsoft Word - x.doc", "Satzung"),
    ],
)
def test_the_title(tmp_path: Path, body: str, properties: str, title: str) -> None:
    parts = docx_parts(body, title=properties)
    if "Titel" in body:
        parts["word/styles.xml"] = STYLES
    (tmp_path / "x.DOCX").write_bytes(archive(parts))
    assert read_file_text(tmp_path / "x.DOCX").title == title


STYLES = (
    '<w:styles xmlns:w="w"><w:style w:styleId="Titel"><w:name w:val="Title"/></w:style></w:styles>'
)
ODD = (
    "<w:p><w:moveFrom><w:r><w:t>Moved.</w:t></w:r></w:moveFrom>"
    "<w:moveTo><w:r><w:t>Moved. </w:t></w:r></w:moveTo>"
    "<w:r><w:ruby><w:rt><w:r><w:t>reading</w:t></w:r></w:rt>"
    "<w:rubyBase><w:r><w:t>base</w:t></w:r></w:rubyBase></w:ruby></w:r></w:p>"
    '<w:altChunk xmlns:r="r" r:id="r1"/><w:altChunk xmlns:r="r" r:id="r2"/>'
)


def test_moves_readings_and_included_parts(tmp_path: Path) -> None:
    parts = docx_parts(ODD) | {
        "word/_rels/document.xml.rels": '<Relationships><Relationship Id="r1" Target="a.html"/>'
        '<Relationship Id="r2" Target="b.rtf"/></Relationships>',
        "word/a.html": "<p>In a chunk.</p>",
    }
    content = read_file_text(write(tmp_path / "x.docx", parts))
    assert content.text == "Moved. base(reading)\n\nIn a chunk."
    assert content.skipped == ("word/b.rtf: is a part of a kind that is not read",)


ENTITIES = """<!DOCTYPE x [<!ENTITY % outside SYSTEM "{outside}"> %outside; <!ENTITY a "aaaaaaaaaa">
<!ENTITY b "{a}"><!ENTITY c "{b}"><!ENTITY d "{c}"><!ENTITY e "{d}"><!ENTITY f "{e}">
<!ENTITY file SYSTEM "{outside}">]>
<w:document xmlns:w="w"><w:p><w:r><w:t>Text {entity} ends.</w:t></w:r></w:p></w:document>"""


def test_entities_name_nothing_outside_and_do_not_expand_without_end(tmp_path: Path) -> None:
    outside = tmp_path / "outside.dtd"
    outside.write_text('<!ENTITY more "Secret.">')
    more = {name: f"&{name};" * 20 for name in "abcde"}
    path = tmp_path / "x.docx"
    for entity in ("&file;", "&more;", "", "&f;"):
        document = ENTITIES.format(outside=outside.as_uri(), entity=entity, **more)
        path.write_bytes(archive(docx_parts("") | {"word/document.xml": document}))
        if entity == "&f;":
            with pytest.raises(CorpusError, match=r"word/document\.xml: is not XML: .*amplif"):
                read_file_text(path)
        else:
            assert read_file_text(path).text == "Text  ends."


def test_a_bomb_is_refused_before_it_is_decompressed(tmp_path: Path) -> None:
    parts = docx_parts("") | {"word/document.xml": b" " * (MAX_PARTS_BYTES + 1)}
    data = archive(parts)
    assert len(data) < 300_000
    (tmp_path / "x.docx").write_bytes(data)
    with pytest.raises(CorpusError, match="is larger than 256 MiB when"):
        read_file_text(tmp_path / "x.docx")


def test_a_bomb_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    size = 50_000_000
    data = archive(docx_parts("") | {"word/document.xml": b"<a>" + b" " * size})
    lie = data.replace(struct.pack("<L", size + 3), struct.pack("<L", 1000))
    assert lie != data
    (tmp_path / "x.docx").write_bytes(lie)
    with pytest.raises(CorpusError, match="is encrypted or not a readable DOCX: Bad CRC-32"):
        read_file_text(tmp_path / "x.docx")


WHOLE = archive(docx_parts(paragraph("Text.")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable DOCX"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "encrypted or not a readable DOCX"),
        (WHOLE[: len(WHOLE) // 2], "not a readable DOCX"),
        (WHOLE[:100] + b"\xff" * 40 + WHOLE[140:], "not a readable DOCX"),
        (archive({"x": ""}), "has no _rels/.rels"),
        (archive({"_rels/.rels": "<Relationships/>"}), "names no document"),
        (archive(docx_parts("<w:p>")), "word/document.xml: is not XML: .*mismatch"),
        (archive(docx_parts("")), "has no text"),
        (archive(docx_parts("") | {"word/document.xml": ""}), "word/document.xml: is not XML"),
    ],
)
def test_a_bad_docx_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.docx").write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read_file_text(tmp_path / "x.docx")


def test_an_encrypted_part_is_refused(tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    begin = data.index(b"PK\x01\x02")
    while begin >= 0:  # the flag of encryption in each entry of the directory
        data[begin + 8] |= 1
        begin = data.find(b"PK\x01\x02", begin + 1)
    (tmp_path / "x.docx").write_bytes(data)
    with pytest.raises(CorpusError, match="password required"):
        read_file_text(tmp_path / "x.docx")


def test_nesting_and_long_text_are_read(tmp_path: Path) -> None:
    deep = "<x>" * 20_000 + paragraph("word " * 3_000_000) + "</x>" * 20_000
    assert len(read(tmp_path / "x.docx", deep).text) == 15_000_000 - 1


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
        (BOOK | {"OEBPS/book.opf": "<package"}, "OEBPS/book.opf: is not XML"),
        (BOOK | {"OEBPS/book.opf": "<package/>"}, "has no text"),
        (epub_parts({"a.xhtml": ""}) | {"META-INF/encryption.xml": ENCRYPTED}, "has no text"),
        (
            {**epub_parts({"text/two words.xhtml": "x"}), "META-INF/encryption.xml": ENCRYPTED},
            "two words.xhtml: is encrypted",
        ),
    ],
)
def test_a_bad_epub_is_refused(tmp_path: Path, parts: dict[str, str | bytes], message: str) -> None:
    path = write(tmp_path / "x.epub", parts)
    with pytest.raises(CorpusError, match=message):
        read_file_text(path)


@pytest.mark.parametrize("chapter", ["missing", b"\xff"])
def test_a_chapter_that_cannot_be_read_is_reported(tmp_path: Path, chapter: str | bytes) -> None:
    parts = {name: part for name, part in BOOK.items() if name != "OEBPS/a.xhtml"}
    if isinstance(chapter, bytes):
        parts["OEBPS/a.xhtml"] = chapter
    content = read_file_text(write(tmp_path / "x.epub", parts))
    assert content.text == "First\n\nText é."
    assert content.skipped[0].startswith("OEBPS/a.xhtml: ")


def test_character_data_and_a_harmless_doctype(tmp_path: Path) -> None:
    parts = epub_parts({"a.xhtml": "<p>It <![CDATA[is <here>]]> &amp; ends.<![CDATA[open</p>"})
    doctype = '<!DOCTYPE package PUBLIC "+//ISBN//OEB" "http://example.org/oeb.dtd">'
    parts["OEBPS/book.opf"] = doctype + str(parts["OEBPS/book.opf"])
    content = read_file_text(write(tmp_path / "x.epub", parts))
    assert content.text.startswith("It is <here> & ends.")


def test_a_book_whose_fonts_are_obfuscated_is_read(tmp_path: Path) -> None:
    fonts = '<encryption xmlns:e="e"><e:CipherReference URI="OEBPS/font.ttf"/></encryption>'
    path = write(tmp_path / "x.epub", BOOK | {"META-INF/encryption.xml": fonts})
    assert read_file_text(path).title == "A book"

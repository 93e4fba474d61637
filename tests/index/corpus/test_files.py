from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.corpus.files import (
    MAX_FILE_BYTES,
    MAX_TITLE,
    FileText,
    declared_encoding,
    decode_text,
    first_line,
    markdown_title,
    parse_html,
    read_file_text,
    rst_title,
    shorten,
)
from index.errors import CorpusError


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("\n\n  First line. \nSecond.", "First line."),
        ("-----\n * * *\nWords", "Words"),
        ("\u7b2c\u4e00\u884c\n", "\u7b2c\u4e00\u884c"),
        ("one\rtwo", "one"),
    ],
)
def test_the_first_line_with_words(text: str, title: str) -> None:
    assert first_line(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Intro.\n\n## Second level ##\n\n# First", "Second level"),
        ("#hashtag\n\nNo heading here.", "#hashtag"),
        ("```sh\n# a comment\n```\n\n# Heading", "Heading"),
        ("Set\nUnder\n=====\n", "Under"),
        ("Words\n\n---\n\n# After a rule", "After a rule"),
        ('---\nlayout: post\ntitle: "The title"\n---\n\n# Heading', "The title"),
        ("---\nlayout: post\n---\n\n# Heading", "Heading"),
        ("---\nnever closed: 1\n\n# Heading", "Heading"),
        ("# \n\nWords.", "Words."),
        ("", ""),
    ],
)
def test_the_title_of_markdown(text: str, title: str) -> None:
    assert markdown_title(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Words.\n\nHeading\n~~~~~~~\n", "Heading"),
        ("=======\n Title \n=======\n", "Title"),
        (".. comment\n\nTitle\n=====\n", "Title"),
        ("Longer than\n===\n\nTitle\n=====", "Title"),
        ("Words.\n\n-----\n\nMore.", "Words."),
        ("", ""),
    ],
)
def test_the_title_of_restructured_text(text: str, title: str) -> None:
    assert rst_title(text) == title


def test_a_long_title_is_cut_and_says_so() -> None:
    assert shorten("a  b\n\tc\x07") == "a b c"
    assert shorten("x" * MAX_TITLE) == "x" * MAX_TITLE
    assert shorten("x" * 10**6) == "x" * (MAX_TITLE - 1) + "…"


@given(st.text(st.sampled_from("#=-~`: \n\ta\ud800\u3000")))
def test_any_text_has_a_title_of_one_short_line(text: str) -> None:
    for find in (first_line, markdown_title, rst_title):
        title = shorten(find(text))
        assert len(title) <= MAX_TITLE
        assert "\n" not in title


@pytest.mark.parametrize(
    "text", ["# " + " " * 10**6 + "x", "#" * 10**6, "=\n" * 10**5, "a\n=" * 10**5]
)
def test_hostile_text_ends(text: str) -> None:
    for find in (first_line, markdown_title, rst_title):
        assert isinstance(find(text), str)


PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title> The
 title </title><style>p { color: red }</style><script>var hidden = "<p>no</p>";</script></head>
<body><!-- a comment --><h1>Heading</h1><p>One <b>bold</b>ly
broken   line.<p>Two &amp; three&nbsp;&#8212; end.</p>
<ul><li>first</li><li>second<ul><li>inner</li></ul></li></ul>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<template><p>hidden</p></template><pre>kept
  lines</pre>after<br>break</body></html>"""


def test_a_page_as_a_reader_sees_it() -> None:
    title, text = parse_html(PAGE)
    assert title.split() == ["The", "title"]
    assert text == (
        "Heading\n\nOne boldly broken line.\n\nTwo & three — end.\n\n"
        "first\nsecond\n\ninner\n\na b\n1 2\n\nkept\nlines\n\nafter\nbreak"
    )


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("", ("", "")),
        ("no markup at all", ("", "no markup at all")),
        ("http://example.org/page.html", ("", "http://example.org/page.html")),
        ('<?xml version="1.0"?><note><p>Text.</p></note>', ("", "Text.")),
        ("<p>never <b>closed", ("", "never closed")),
        ("</p></div>stray", ("", "stray")),
        ("<title>Only</title>", ("Only", "")),
        ("<body><p>a</p><svg><title>icon</title></svg><p>b", ("icon", "a\n\nb")),
        ("<script>never closed <p>x", ("", "")),
    ],
)
def test_odd_markup(markup: str, expected: tuple[str, str]) -> None:
    assert parse_html(markup) == expected


def test_nesting_deeper_than_the_recursion_limit() -> None:
    depth = 20_000
    assert parse_html("<div>" * depth + "deep" + "</div>" * depth) == ("", "deep")
    assert parse_html("<i>" * depth + "deep") == ("", "deep")


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b'<meta charset="windows-1252">', "windows-1252"),
        (b'<META http-equiv="content-type" content="text/html; charset=koi8-r">', "koi8-r"),
        (b'<?xml version="1.0" encoding="shift_jis"?><html>', "shift_jis"),
        (b"<p>none</p>", ""),
        (b"", ""),
    ],
)
def test_the_encoding_that_a_page_declares(data: bytes, encoding: str) -> None:
    assert declared_encoding(data) == encoding


def pdf(pages: list[str], *, info: str = "", encrypted: bool = False) -> bytes:
    """A PDF by hand: one line of Helvetica for each line of each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        lines = " ".join(f"({line}) Tj T*" for line in page.split("\n"))
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    objects.append(f"<< {info} >>")
    trailer = f"/Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R"
    if encrypted:
        trailer += (
            f" /ID [<{'00' * 16}> <{'00' * 16}>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4"
            f" /O <{'11' * 32}> /U <{'22' * 32}> >>"
        )
    return _with_cross_references(objects, trailer)


def _with_cross_references(objects: list[str], trailer: str) -> bytes:
    data = b"%PDF-1.4\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n"
    for number, content in enumerate(objects, start=1):
        table += f"{len(data):010} 00000 n \n"
        data += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    end = f"{table}trailer\n<< {trailer} >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + end.encode("latin-1")


def read(path: Path, content: bytes) -> FileText:
    path.write_bytes(content)
    return read_file_text(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe".encode(), "Größe"),
        ("Größe".encode("utf-8-sig"), "Größe"),
        ("Größe 漢字 😀".encode("utf-16"), "Größe 漢字 😀"),
        (b"\xfe\xff" + "Größe 漢字 😀".encode("utf-16-be"), "Größe 漢字 😀"),
        (b"a\0b\r\nc", "a\0b\r\nc"),
        (b"", ""),
    ],
)
def test_text_that_is_decoded(data: bytes, text: str) -> None:
    assert decode_text(data) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc\xe9 d", "is not UTF-8 at byte 3"),
        (b"\xef\xbb\xbfabc\xe9", "is not UTF-8 at byte 6"),
        (b"\xed\xa0\x80", "is not UTF-8 at byte 0"),
        (b"\xff\xfea\0b", "is not UTF-16 at byte 4"),
        (b"\xff\xfea\0\0\xd8b\0", "is not UTF-16 at byte 4"),
    ],
)
def test_the_byte_that_is_no_text_is_named(data: bytes, message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        decode_text(data)
    assert str(caught.value) == message


def test_text_is_left_as_it_is(tmp_path: Path) -> None:
    content = "\n  * * *\n  The title \r\n\r\n\tText.\x0c\n"
    assert read(tmp_path / "x.txt", content.encode()) == FileText("The title", content)


@pytest.mark.parametrize("suffix", [".txt", ".md", ".rst", ".html"])
def test_the_title_is_the_file_stem_where_there_is_no_word(tmp_path: Path, suffix: str) -> None:
    assert read(tmp_path / f"my.notes{suffix}", b"***\n") == FileText(
        "my.notes", "***\n".strip() if suffix == ".html" else "***\n"
    )


def test_a_title_is_one_short_line(tmp_path: Path) -> None:
    content = read(tmp_path / "x.txt", b"word " * 10_000)
    assert len(content.title) == 200
    assert len(content.text) == 50_000


def test_html_without_a_title_is_called_by_its_first_line(tmp_path: Path) -> None:
    content = read(tmp_path / "x.html", b"<title> </title><h1>Heading</h1><p>Text.")
    assert content == FileText("Heading", "Heading\n\nText.")


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252"])
def test_html_is_decoded_as_it_says(tmp_path: Path, encoding: str) -> None:
    page = f'<meta charset="{encoding}"><title>T</title><p>Gr\xf6\xdfe'.encode("latin-1")
    assert read(tmp_path / "x.html", page).text == "Größe"


def test_html_in_utf_8_is_that_whatever_it_says(tmp_path: Path) -> None:
    page = '<meta charset="iso-8859-1"><p>Größe'.encode()
    assert read(tmp_path / "x.html", page).text == "Größe"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "nonsense", "hex", ""])
def test_html_that_is_not_what_it_says_is_refused(tmp_path: Path, encoding: str) -> None:
    page = f'<meta charset="{encoding}"><p>Gr\xf6\xdfe'.encode("latin-1")
    with pytest.raises(CorpusError, match="UTF-8"):
        read(tmp_path / "x.html", page)


def test_a_pdf_gives_the_text_of_all_pages_and_its_title(tmp_path: Path) -> None:
    content = pdf(["First page.\nSecond line.", "Second page."], info="/Title (A paper)")
    expected = FileText("A paper", "First page.\nSecond line.\nSecond page.")
    assert read(tmp_path / "x.pdf", content) == expected


def test_a_pdf_without_a_title_is_called_by_its_first_line(tmp_path: Path) -> None:
    assert read(tmp_path / "x.PDF", pdf(["A paper\nText."])).title == "A paper"


def test_a_word_broken_at_a_line_end_of_a_pdf_is_whole(tmp_path: Path) -> None:
    content = pdf(["a long exam-\nple of a hyphen"])
    assert " ".join(read(tmp_path / "x.pdf", content).text.split()) == "a long example of a hyphen"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable PDF"),
        (b"not a PDF", "not a readable PDF"),
        (pdf(["Text."])[:200], "not a readable PDF"),
        (pdf(["Text."], encrypted=True), "is encrypted"),
        (pdf([""]), "has no text"),
    ],
)
def test_a_pdf_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / "x.pdf", content)


def test_pdfs_can_be_read_from_several_threads(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.pdf" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_bytes(pdf([f"Document {number} page {page}" for page in range(5)]))
    with ThreadPoolExecutor(8) as pool:
        titles = [content.title for content in pool.map(read_file_text, paths)]
    assert titles == [f"Document {number} page 0" for number in range(40)]


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(CorpusError, match=f"is larger than {MAX_FILE_BYTES} bytes"):
        read_file_text(path)


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(CorpusError, match="leads nowhere"):
        read_file_text(tmp_path / "x.txt")

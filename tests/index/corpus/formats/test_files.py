"""What holds for files of every kind."""

import random
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.corpus.formats.content import (
    MAX_FILE_BYTES,
    MAX_TITLE,
    FileText,
    markdown_heading,
    plain_title,
    rst_heading,
    shorten,
    title_and_metadata,
)
from index.corpus.formats.files import read_file_text
from index.corpus.formats.html import declared_encoding, element_text, parse_html, parse_markup
from index.corpus.formats.pdf import compose_accents
from index.corpus.formats.plain import decode_text
from index.errors import CorpusError
from tests.kit.pdf_files import pdf, scanned


def markdown_title(text: str) -> str:
    return title_and_metadata(text, markdown_heading)[0]


def rst_title(text: str) -> str:
    return title_and_metadata(text, rst_heading)[0]


LINE = "The following files belong together and must be"


def read(path: Path, content: bytes) -> FileText:
    path.write_bytes(content)
    return read_file_text(path)


@pytest.mark.parametrize("suffix", [".txt", ".md", ".rst", ".html"])
def test_the_title_is_the_file_name_where_there_is_no_word(tmp_path: Path, suffix: str) -> None:
    assert read(tmp_path / f"my-old_notes.2026-05-01{suffix}", b"***\n") == FileText(
        "My old notes 2026-05-01", "***\n".strip() if suffix == ".html" else "***\n"
    )


def test_a_title_is_one_short_line(tmp_path: Path) -> None:
    content = read(tmp_path / "x.md", b"word " * 10_000)
    assert len(content.title) == 200
    assert len(content.text) == 50_000


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(CorpusError, match="is larger than 64 MiB"):
        read_file_text(path)


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(CorpusError, match="leads nowhere"):
        read_file_text(tmp_path / "x.txt")


def test_a_pdf_gives_the_text_of_all_pages_and_its_title(tmp_path: Path) -> None:
    pages = ["First page.\nSecond line.", "A word broken at a hy-\nphen is whole."]
    content = read(tmp_path / "x.pdf", pdf(pages, info="/Title (A paper)"))
    words = "First page. Second line. A word broken at a hyphen is whole."
    assert (content.title, " ".join(content.text.split())) == ("X", words)
    assert content.metadata == {"pages": 2}
    info = "/Title (First page) /Author (Nobody) /CreationDate (D:20260501120000Z)"
    content = read(tmp_path / "x.PDF", pdf(["First page. " * 9], info=info))
    assert (content.title, content.metadata) == ("First page", {"date": "2026-05-01", "pages": 1})


@pytest.mark.parametrize(
    ("info", "title"),
    [
        *(("/Title (paper.dvi)", "Rivers of the North"), ("", "Rivers of the North")),
        ("/Title (Microsoft Word - Rivers.doc)", "Rivers of the North"),
        ("/Title (notes.txt)", "Rivers of the North"),
        *(("/Title (347)", "Rivers of the North"), ("/Title (of the north)", "of the north")),
    ],
)
def test_a_title_is_what_stands_on_the_page(tmp_path: Path, info: str, title: str) -> None:
    page = "\n".join(
        ["Journal of Water 347", "", "/F1 20:Rivers", "/F1 20:of the North", "Text." * 99]
    )
    assert read(tmp_path / "x.pdf", pdf([page], info=info)).title == title


def test_running_headers_and_hyphens_of_lines(tmp_path: Path) -> None:
    pages = [f"The journal, vol. 3\nText {'x' * n} alone.\n{n}" for n in range(7, 12)]
    content = read(tmp_path / "x.pdf", pdf(pages))
    assert content.text.count("The journal") == 1
    assert [line for line in content.text.split("\n") if line.isdigit()] == []
    lines = "A long rain, a term. The n-\noctanal of COVID-\n19, state-of-the-\nart infor-\nmation "
    content = read(tmp_path / "x.pdf", pdf([lines + "of the long-\nterm kind in 2019-\n2020."]))
    words = content.text.replace("\n", "").split()
    assert {"n-octanal", "COVID-19,", "state-of-the-art", "long-term"} <= {*words}
    assert {"information", "2019-2020."} <= {*words}


def test_accents_that_are_characters_of_their_own() -> None:
    assert compose_accents("Per Martin-Lof¨, Schr¨odinger, Erd˝os, ´ıt, caf´e") == (
        "Per Martin-Löf, Schrödinger, Erdős, ít, café"
    )
    assert compose_accents("x ´ y, 90˚ and `code`") == "x ´ y, 90˚ and `code`"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((b"", "not a readable PDF"), (b"not a PDF", "not a readable PDF")),
        (pdf(["Text."])[:200], "not a readable PDF"),
        *((pdf(["Text."], encrypted=True), "is encrypted"), (pdf([""]), "has no text")),
        (pdf(["Words" + "\x03\x04\x05" * 9]), "is not readable: 84% of its characters"),
    ],
)
def test_a_pdf_that_cannot_be_read_is_refused(
    tmp_path: Path, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.corpus.formats.pdf.languages", str)  # tesseract is not there
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / "x.pdf", content)


def test_pages_without_text_are_read_as_pictures_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rivers = scanned(pdf(["The cold rivers carry water.\nThey end in the sea."]))
    found = read(tmp_path / "x.pdf", rivers)
    assert found.text.count("rivers carry water") == 2
    assert found.remarks == ["page 2 read by tesseract"]
    monkeypatch.setattr("index.corpus.formats.pdf.languages", str)  # it is not there
    found = read(tmp_path / "x.pdf", rivers)
    hint = "tesseract reads such pages, if it is installed"
    assert found.text.count("rivers carry water") == 1
    assert found.remarks == [f"page 2 without text, of pictures; {hint}"]
    found = read(tmp_path / "y.pdf", pdf(["Stones. " * 9, "Words" + "\x03\x04\x05" * 9]))
    assert "Words" not in found.text
    [said] = found.skipped
    assert said.startswith("page 2 of fonts that do not say")
    assert said.endswith(hint)


@pytest.mark.parametrize(
    ("find", "text", "title"),
    [
        (plain_title, "", ""),
        (plain_title, "\n\n  First line. \nSecond.", "First line."),
        (plain_title, "-----\n * * *\nWords", "Words"),
        (plain_title, "\u7b2c\u4e00\u884c\n", "\u7b2c\u4e00\u884c"),
        (plain_title, "one\rtwo", "one"),
        (plain_title, "%% THE FILES %%\n=====\n", "THE FILES"),
        (plain_title, f"{LINE}\ndistributed whole. More\nhere.", f"{LINE} distributed whole."),
        *(
            (plain_title, text, "")
            for text in (f"{LINE}\nso{' on' * 40}", f"{LINE} " * 9, "Dear Sir,")
        ),
        *(
            (plain_title, text, "")
            for text in ("\\def\\x{1}", "(c) Ann", "Is in the public domain.")
        ),
        (rst_title, ".. A comment\n   of two lines.\n\nDocutils_ words.", "Docutils_ words."),
        (rst_title, "Docutils_ Lists\n===============\n", "Docutils Lists"),
        (rst_title, "Words.\n\nHeading\n~~~~~~~\n", "Heading"),
        (rst_title, "=======\n Title \n=======\n", "Title"),
        (rst_title, ".. comment\n\nTitle\n=====\n", "Title"),
        (rst_title, "Longer than\n===\n\nTitle\n=====", "Title"),
        (rst_title, "Words.\n\n-----\n\nMore.", "Words."),
        (rst_title, "PEP: 8\nTitle: Style\n Guide\n\nAbstract\n========\n", "Style Guide"),
        (rst_title, ":Title: Fields\n\nTitle\n=====\n", "Fields"),
        (
            rst_title,
            "Abstract\n========\n\nThe :mod:`io` module\n====================",
            "The io module",
        ),
        (rst_title, "", ""),
        (markdown_title, "[![b](x)](y)\n\n<h1 align=center>A <b>tool</b></h1>\n", "A tool"),
        (markdown_title, "# The [`io`](http://x) *module*", "The io module"),
        (markdown_title, "Intro.\n\n## Second level ##\n\n# First", "Second level"),
        (markdown_title, "#hashtag\n\nNo heading here.", "#hashtag"),
        (markdown_title, "```sh\n# a comment\n```\n\n# Heading", "Heading"),
        (markdown_title, "Set\nUnder\n=====\n", "Under"),
        (markdown_title, "Words\n\n---\n\n# After a rule", "After a rule"),
        (markdown_title, '---\nlayout: post\ntitle: "The title"\n---\n\n# Heading', "The title"),
        (markdown_title, "---\nlayout: post\n---\n\n# Heading", "Heading"),
        (markdown_title, "---\nnever closed: 1\n\n# Heading", "Heading"),
        (markdown_title, "# \n\nWords.", "Words."),
        (markdown_title, "Title: The fields\nDate: 2026\n\n# Heading", "The fields"),
        (markdown_title, "", ""),
    ],
)
def test_the_title_of_a_text(find: Callable[[str], str], text: str, title: str) -> None:
    assert find(text) == title


def test_a_long_title_is_cut_and_says_so() -> None:
    assert shorten("a  b\n\tc\x07") == "a b c"
    assert shorten("x" * MAX_TITLE) == "x" * MAX_TITLE
    assert shorten("x" * 10**6) == "x" * (MAX_TITLE - 1) + "…"


@given(st.text(st.sampled_from("#=-~`: \n\ta\ud800\u3000")))
def test_any_text_has_a_title_of_one_short_line(text: str) -> None:
    for find in (plain_title, markdown_title, rst_title):
        title = shorten(find(text))
        assert len(title) <= MAX_TITLE
        assert "\n" not in title


@pytest.mark.parametrize(
    "text", ["# " + " " * 10**6 + "x", "#" * 10**6, "=\n" * 10**5, "a\n=" * 10**5]
)
def test_hostile_text_ends(text: str) -> None:
    for find in (plain_title, markdown_title, rst_title):
        assert isinstance(find(text), str)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        *(("Größe".encode(), "Größe"), ("Größe".encode("utf-8-sig"), "Größe")),
        ("Größe 漢字 😀".encode("utf-16"), "Größe 漢字 😀"),
        (b"\xfe\xff" + "Größe 漢字 😀".encode("utf-16-be"), "Größe 漢字 😀"),
        *((b"a\0b\r\nc" * 20 + b"d" * 2000, "a\0b\r\nc" * 20 + "d" * 2000), (b"", "")),
    ],
)
def test_text_that_is_decoded(data: bytes, text: str) -> None:
    assert decode_text(data) == (text, "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\xff", "is not UTF-8 at byte 1"),
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


TEXTS = {
    "english": "The river carries cold water to the sea.\r\n" * 9,
    "russian": "Река несёт холодную воду к морю.\n" * 9,
    "greek": "Το ποτάμι κουβαλά κρύο νερό στη θάλασσα.\n" * 9,
    "chinese": "河流把冷水带到大海，一行一行地写下来。\n" * 9,
    "emoji": "A smile 😀 and another 😃.\n" * 9,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("language", TEXTS)
def test_encodings_without_a_byte_order_mark(language: str, encoding: str) -> None:
    assert decode_text(TEXTS[language].encode(encoding)).text == TEXTS[language]


@pytest.mark.parametrize(
    ("text", "encoding", "remark"),
    [
        ("The “Café” isn’t open — 5 €.", "cp1252", "read as windows-1252, a guess"),
        ("東京の地下鉄は安全です。\n", "cp932", "read as cp932, a guess"),
        ("Zażółć gęślą jaźń. Rzeka niesie zimną wodę.", "cp1250", "read as windows-1250, a guess"),
    ],
)
def test_another_encoding_is_guessed(text: str, encoding: str, remark: str) -> None:
    decoded = decode_text(text.encode(encoding))
    assert decoded.text == text
    assert remark in decoded.remark


def test_a_line_of_another_encoding_does_not_lose_the_file() -> None:
    decoded = decode_text("A café — far.\n".encode() * 9 + "One café".encode("cp1252"))
    assert decoded == ("A café — far.\n" * 9 + "One café", decoded.remark)
    assert "but for bytes (1) that are read as windows-1252" in decoded.remark


@pytest.mark.parametrize(
    "data",
    [
        TEXTS["english"].encode("utf-32-le"),
        TEXTS["russian"].encode("utf-32-be"),
        TEXTS["russian"].replace(" ", "").replace("\n", "").encode("utf-16-le"),
        bytes(range(128)) * 99,
    ],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(CorpusError, match="control characters"):
        decode_text(data)


def test_text_is_left_as_it_is(tmp_path: Path) -> None:
    content = "\n  * * *\n  The title \r\n\r\n\tText.\x0c\n"
    assert read(tmp_path / "x.txt", content.encode()) == FileText("The title", content)


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
    page = parse_html(PAGE)
    title, text = page.title, page.text
    assert title.split() == ["The", "title"]
    assert text == (
        "Heading\n\nOne boldly broken line.\n\nTwo & three — end.\n\n"
        "first\nsecond\n\ninner\n\na b\n1 2\n\nkept\nlines\n\nafter\nbreak"
    )


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        *(("", ("", "")), ("no markup at all", ("", "no markup at all"))),
        ("http://example.org/page.html", ("", "http://example.org/page.html")),
        ('<?xml version="1.0"?><note><p>Text.</p></note>', ("", "Text.")),
        *(("<p>never <b>closed", ("", "never closed")), ("</p></div>stray", ("", "stray"))),
        ("<title>Only</title>", ("Only", "")),
        ("<body><p>a</p><svg><title>icon</title></svg><p>b", ("icon", "a\n\nb")),
        ("<script>never closed <p>x", ("", "")),
    ],
)
def test_odd_markup(markup: str, expected: tuple[str, str]) -> None:
    page = parse_html(markup)
    assert (page.title or "", page.text) == expected


def test_the_text_of_an_element_is_that_of_the_page() -> None:
    page = parse_markup(PAGE)
    assert element_text(page) == parse_html(PAGE).text
    assert element_text(page.find(".//ul")) == "first\nsecond\n\ninner"


def test_a_tree_is_never_cut() -> None:
    with pytest.raises(CorpusError, match="nested too deeply"):
        parse_markup("<div>" * 20_000 + "deep")


@pytest.mark.parametrize("repeated", ["<a ", "<!--", '<a href="', "<i>", "<![CDATA[", "&#"])
def test_time_is_linear(repeated: str) -> None:
    began = time.process_time()
    parse_html(repeated * (500_000 // len(repeated)))
    assert time.process_time() - began < 20


def test_nesting_deeper_than_the_recursion_limit() -> None:
    depth = 20_000
    assert parse_html("<div>" * depth + "deep" + "</div>" * depth).text == "deep"
    assert parse_html("<i>" * depth + "deep").text == "deep"


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


def test_html_without_a_title_is_called_by_its_first_line(tmp_path: Path) -> None:
    content = read(tmp_path / "x.html", b"<title> </title><h1>Heading</h1><p>Text.")
    assert content == FileText("Heading", "Heading\n\nText.")


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252"])
def test_html_is_decoded_as_it_says(tmp_path: Path, encoding: str) -> None:
    page = f'<meta charset="{encoding}"><title>T</title><p>Gr\xf6\xdfe'.encode("latin-1")
    assert read(tmp_path / "x.html", page).text == "Größe"
    utf_8 = f'<meta charset="{encoding}"><p>Größe'.encode()  # is that whatever it says
    assert read(tmp_path / "x.html", utf_8).text == "Größe"


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("iso-8859-1", "cp1252", "The “Café” isn’t open — 5 €."),
        ("Shift_JIS", "cp932", "①東京の地下鉄㈱は安全です。"),
        ("x-sjis", "cp932", "東京の地下鉄は安全です。"),
        ("gb2312", "gbk", "朱镕基总理访问。"),
        ("euc-kr", "cp949", "똠방각하 펲시콜라"),
        ("iso-2022-jp", "iso2022_jp", "東京の地下鉄は安全です。"),
    ],
)
def test_labels_of_the_web(tmp_path: Path, label: str, codec: str, text: str) -> None:
    page = f'<meta charset="{label}"><p>{text}'.encode(codec)
    assert read(tmp_path / "x.html", page).text == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "nonsense", "hex", ""])
def test_html_that_is_not_what_it_says_is_guessed(tmp_path: Path, encoding: str) -> None:
    page = f'<meta charset="{encoding}"><p>Die Gr\xf6\xdfe'.encode("latin-1")
    content = read(tmp_path / "x.html", page)
    assert content.text == "Die Größe"
    assert "a guess" in content.remarks[0]


def test_fields_of_files_are_metadata(tmp_path: Path) -> None:
    page = b'<meta name="Author" content="Ann"><meta name="date" content="2026-05-01T10:00">Text.'
    expected = {"author": "Ann", "date": "2026-05-01"}
    assert read(tmp_path / "x.html", page).metadata == expected
    front = b"---\nauthor: Ann\ndate: 2026-05-01\n---\n\nText."
    assert read(tmp_path / "x.md", front).metadata == expected


def test_data_and_soft_hyphens_leave_the_text(tmp_path: Path) -> None:
    picture = b64encode(random.Random(3).randbytes(6_000)).decode()
    text = f"# Rivers\n\n![map](data:image/png;base64,{picture}) Ge\u00adsamt\n"
    lines = "\n".join(wrap(picture, 76))
    content = read(tmp_path / "x.md", f"{text}\n{lines}\nEnd {'ACGT' * 200}.".encode())
    assert content.text == f"# Rivers\n\n![map]() Gesamt\n\n\nEnd {'ACGT' * 200}."


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        (
            ".rtf",
            b"{\\rtf1\\ansi{\\info{\\title Bees}{\\author Ann}} A caf\\'e9 of bees.\\par}",
            FileText("Bees", "A café of bees.", {"author": "Ann"}),
        ),
        (".csv", b"name,weight\nbee,2\n", FileText("My list", "Row 1:\n  name: bee\n  weight: 2")),
    ],
)
def test_kinds_of_the_extra(
    tmp_path: Path, suffix: str, content: bytes, expected: FileText
) -> None:
    assert read(tmp_path / f"my_list{suffix}", content) == expected
    mail = b"From: ann@example.org\nSubject: Bees\nDate: Mon, 4 May 2026 10:00:00 +0000\n\nText."
    found = read(tmp_path / "x.eml", mail)
    assert (found.title, found.metadata["date"]) == ("Bees", "2026-05-04")
    with pytest.raises(CorpusError, match="not a readable XLSX"):
        read(tmp_path / "x.xlsx", b"x")

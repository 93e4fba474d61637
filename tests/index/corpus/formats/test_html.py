"""HTML: its text, title and encoding."""

import time
from pathlib import Path

import pytest

from index.corpus.formats.content import FileText
from index.corpus.formats.files import read_file_text
from index.corpus.formats.html import (
    declared_encoding,
    element_text,
    parse_html,
    parse_markup,
)
from index.errors import CorpusError


def read(path: Path, content: bytes) -> FileText:
    path.write_bytes(content)
    return read_file_text(path)


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


def test_the_text_of_an_element_is_that_of_the_page() -> None:
    page = parse_markup(PAGE)
    assert element_text(page) == parse_html(PAGE)[1]
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

import pytest

from index.html_text import declared_encoding, parse_html

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

"""Pages of documentation: their content, and the links in it."""

from pathlib import Path

import pytest

from index.progress import SilentProgress
from training.sources.html_pages import read_html_pages
from training.sources.linked_corpus import LinkedDocument

PAGE = """<html><head><title>{name} — Doc</title></head><body>
<nav><a href="away.html">Away</a></nav>
<div role="main"><h1>{name}<a class="headerlink" href="#x">¶</a></h1>
<div class="toctree-wrapper"><a href="away.html">Contents</a></div>
<p>{text}</p></div>
<div class="sphinxsidebar"><a href="away.html">Next</a></div></body></html>"""


def pages(folder: Path, **texts: str) -> dict[str, LinkedDocument]:
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(name=name, text=text), encoding="utf-8")
    prefix = f"{folder.name}/"
    return {
        page.id.removeprefix(prefix).removesuffix(".html"): page
        for page in read_html_pages([folder], SilentProgress())
    }


def test_links_of_the_content_are_links(tmp_path: Path) -> None:
    text = (
        'See <a href="b.html#part">the <em>other</em>  page</a>, <a href="sub/c.html">c</a>, '
        '<a href="https://x.org/b.html">b</a>, <a href="a.html">this</a>, <a href="#x">here</a>, '
        '<a href="gone.html">gone</a>, <a href="http://[bad">bad</a>, <a href="b.html"></a>.'
    )
    back = '<a href="../b.html?x=1">up</a> <a href="../a%2Ehtml">a</a>'
    found = pages(tmp_path / "doc", a=text, b="x", sub__c=back, away="y")
    a = found["a"]
    assert a.links == {"doc/b.html", "doc/sub/c.html"}
    assert a.text.split("\n\n") == ["a", "See the other page, c, b, this, here, gone, bad, ."]
    assert [(a.text[m.start : m.end], m.target) for m in a.mentions] == [
        ("the other page", "doc/b.html"),
        ("c", "doc/sub/c.html"),
    ]
    assert found["sub/c"].links == {"doc/a.html", "doc/b.html"}
    assert a.title == "a"
    assert not found["b"].links


def test_links_in_code_are_mentions(tmp_path: Path) -> None:
    found = pages(tmp_path / "doc", a='<pre>f(<a href="b.html">B</a>,\n  x)</pre>', b="x")["a"]
    [mention] = found.mentions
    assert found.text[mention.start - 2 : mention.end + 1] == "f(B,"


@pytest.mark.parametrize("name", ["genindex", "search", "py-modindex", "_modules__a", "genindex-A"])
def test_indexes_are_no_pages(tmp_path: Path, name: str) -> None:
    found = pages(
        tmp_path / "doc", a=f'<a href="{name.replace("__", "/")}.html">i</a>', **{name: ""}
    )
    assert list(found) == ["a"]
    assert not found["a"].links


def test_a_symbolic_link_is_the_page_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc/b.html").symlink_to("real.html")
    (tmp_path / "doc/away.html").symlink_to("../away.html")
    (tmp_path / "away.html").write_text("<p>Not of the folder.</p>")
    links = '<a href="b.html">b</a> <a href="away.html">c</a> <a href="a%00">d</a>'
    found = pages(tmp_path / "doc", a=links, real="x")
    assert set(found) == {"a", "real"}
    assert found["a"].links == {"doc/real.html"}


def test_a_page_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc/bad.html").write_bytes(b"<p>\xff\x00\xfa" * 9)
    assert list(pages(tmp_path / "doc", a="x")) == ["a"]

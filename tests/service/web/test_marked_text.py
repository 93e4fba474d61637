"""Texts with passages marked, wherever they lie."""

import time
import unicodedata

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from encoder.comparison.result import PassageKind, Section, Span
from service.web.marked_text import MarkedText, join_lines, mark_text, visible


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        *(("\0", "␀"), ("\x1b", "␛"), ("\x7f", "␡"), ("\x85", "[U+0085]")),
        *(("\u202e", "[U+202E]"), ("\u2066", "[U+2066]"), ("\ufeff", "[U+FEFF]")),
        *(("\ud800", "[U+D800]"), ("\uffff", "[U+FFFF]")),
    ],
)
def test_what_hides_is_shown(character: str, shown: str) -> None:
    assert visible(f"a{character}b") == f"a{shown}b"


@pytest.mark.parametrize(
    "honest", ["tab\tand\r\nline", "שלום \u200fabc", "می\u200cخواهم", "👩\u200d🚀", "<b>&amp;"]
)
def test_what_honest_texts_need_stays(honest: str) -> None:
    assert visible(honest) == honest


@given(st.text(st.characters(exclude_categories=())))
def test_the_result_is_utf_8_and_holds_no_control(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert not {c for c in shown if unicodedata.category(c) == "Cc"} - set("\t\r\n")
    assert not {c for c in shown if unicodedata.bidirectional(c) in {"RLO", "LRO", "RLI", "PDI"}}


WRAPPED = "The keeper of the lighthouse lit the lamp each evening before the"


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        (f"{WRAPPED}\nfog came in.", f"{WRAPPED} fog came in."),
        (f"{WRAPPED}\n\nfog came in.", f"{WRAPPED}\n\nfog came in."),
        (f"{WRAPPED}\n- fog\n2. rain", f"{WRAPPED}\n- fog\n2. rain"),
        (f"{WRAPPED}\r\nfog came in.", f"{WRAPPED}\r\nfog came in."),
        ("fog\nrain\nsnow", "fog\nrain\nsnow"),
        (f"A storm broke a pane of the lantern at night.\n{WRAPPED}", None),
    ],
    ids=["wrapped", "paragraphs", "list", "other line ends", "short lines", "there was room"],
)
def test_lines_are_joined_where_they_were_wrapped(text: str, joined: str | None) -> None:
    assert join_lines(text) == (joined or text)


Passages = list[tuple[Span, PassageKind]]

TEXT = "abcdefghij"
spans = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: Span(*sorted(pair)))
kinds: st.SearchStrategy[PassageKind] = st.sampled_from(["verbatim", "paraphrase", "similar"])
texts = st.text(st.sampled_from("ab <>&\"'\n\r\t\0\u202e\ud800é"), max_size=40)


def parsed(marked: MarkedText) -> BeautifulSoup:
    """The text as elements; in <pre>, where the parser leaves white space alone."""
    return BeautifulSoup(f"<pre>{marked.html}</pre>", "html.parser")


def shown(marked: MarkedText) -> str:
    """The text that a reader sees, without the numbers."""
    soup = parsed(marked)
    for number in soup.find_all("a"):
        number.decompose()
    return soup.get_text()


def passages_in(marked: MarkedText) -> list[str]:
    """What is marked as each passage."""
    marks = [mark.get_text() for mark in parsed(marked).find_all("mark")]
    return ["".join(marks[first : last + 1]) for first, last in marked.ranges]


@given(texts, st.lists(st.tuples(spans, kinds), max_size=6), st.lists(spans, max_size=3))
def test_nothing_is_lost_added_or_moved(text: str, passages: Passages, places: list[Span]) -> None:
    marked = mark_text(text, "left", passages, [Section(span, "") for span in places])
    as_read = visible(text).replace("\r\n", "\n")
    assert shown(marked).replace("\r\n", "\n") == as_read
    found = [passage.replace("\r", "") for passage in passages_in(marked)]
    assert found == [visible(text[s.start : s.end]).replace("\r", "") for s, _ in passages]


def test_crossing_passages_are_cut_at_the_ends_of_the_other() -> None:
    passages: Passages = [(Span(1, 6), "similar"), (Span(4, 8), "verbatim")]
    marked = mark_text(TEXT, "left", passages, [Section(Span(0, 10), "")])
    assert marked.html == (
        "<a class=h id=ls1>§1</a>a"
        '<a class="n s" id=l1 href="#r1">1</a><mark class="s">bcd</mark>'
        '<a class="n v" id=l2 href="#r2">2</a><mark class="v o">ef</mark>'
        '<mark class="v">gh</mark>ij'
    )
    assert marked.ranges == ((0, 1), (1, 2))


def test_an_empty_passage_has_a_number_and_no_marks() -> None:
    marked = mark_text(TEXT, "left", [(Span(3, 3), "similar"), (Span(3, 5), "similar")], [])
    assert marked.ranges == ((0, -1), (0, 0))
    assert "id=l1" in marked.html
    assert 'id=r1 href="#l1"' in mark_text(TEXT, "right", [(Span(3, 3), "similar")], []).html


def test_the_work_is_linear_in_the_passages() -> None:
    text, passages = "x" * 20_000, [(Span(n, 20_000 - n), "verbatim") for n in range(3000)]
    started = time.process_time()
    marked = mark_text(text, "left", passages, [])
    assert time.process_time() - started < 5
    assert len(marked.html) < 200 * len(passages)

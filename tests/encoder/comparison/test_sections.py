"""Sections: from the structure of a text, or equal parts; always the whole text, in linear time."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.comparison.sections import MAX_SECTIONS, find_sections

SENTENCE = "The colony sends its foragers out at dawn and counts them when they come back. "


def titles(text: str, parts: int = 2) -> list[str]:
    return [section.title for section in find_sections(text, parts)]


def pieces(text: str, parts: int = 2) -> list[str]:
    return [text[section.span.start : section.span.end] for section in find_sections(text, parts)]


def test_markdown_cut_at_the_topmost_level_that_repeats() -> None:
    text = "# Ants\n\nThey dig.\n\n## Nests ##\n\nDeep.\n\n### Depth\n\nTwo.\n\n## Food\n\nSeeds.\n"
    assert titles(text) == ["Ants", "Nests", "Food"]
    assert pieces(text)[1] == "## Nests ##\n\nDeep.\n\n### Depth\n\nTwo.\n\n"
    code = "# One\n\n```\n# not one\n# not two\n```\n\n# Two\n\nText.\n"
    assert titles(code) == ["One", "Two"]


def test_underlined_headings_of_markdown_and_rst() -> None:
    markdown = "Ants\n====\n\nNests\n-----\nDeep.\n\nFood\n----\nSeeds.\n"
    assert titles(markdown) == ["Ants", "Nests", "Food"]
    rst = "======\n Ants\n======\n\nNests\n~~~~~~\nDeep.\r\n\r\nFood\r\n~~~~~\r\nSeeds.\n"
    assert titles(rst) == ["Ants", "Nests", "Food"]
    assert pieces(rst)[0].startswith("======\n Ants")


def test_numbered_headings_of_plain_text() -> None:
    text = (
        "Request for Comments\n\n1.  Introduction\n\n   Ants dig.\n\n1.1.  Terms\n\n   None.\n\n"
        "2.  Nests\n\n   Deep.\n\nAppendix A. Seeds\n\n   Many.\n"
    )
    assert titles(text) == ["", "1. Introduction", "2. Nests", "Appendix A. Seeds"]
    assert titles("I. ANTS\n\nDig.\n\nIV. SEEDS\n\nMany.\n") == ["I. ANTS", "IV. SEEDS"]


def test_what_looks_like_a_heading_and_is_none() -> None:
    assert titles("Buy:\n\n1. Milk\n\n2. Bread\n\n3. Salt\n", 1) == [""]
    assert titles("Buy:\n1. Milk\n2. Bread\n3. Salt\n", 1) == [""]
    rules = "A paragraph of\ntwo lines\n---\n\nanother of\ntwo lines\n---\n\nend.\n"
    assert titles(rules) == ["", ""]


def test_html_headings_where_the_raw_text_has_them() -> None:
    text = '<body><h2 id="a">Ants <b>dig</b></h2><p>x</p><h3>Deep</h3>y<H2>Seeds</H2>z'
    assert titles(text) == ["", "Ants dig", "Seeds"]


def test_without_structure_equal_parts_at_boundaries() -> None:
    text = SENTENCE * 30
    for parts in (1, 2, 3, 5):
        found = pieces(text, parts)
        assert len(found) == parts
        assert all(piece.strip().endswith(".") for piece in found)
        assert max(map(len, found)) - min(map(len, found)) <= 2 * len(SENTENCE)
    assert pieces("First paragraph. Of two.\n\nThe second one is here.")[0].endswith("\n\n")


def test_texts_without_a_boundary() -> None:
    for text in ("Ants dig deep", "", " \n "):
        assert pieces(text) == [text]
    assert [len(piece) for piece in pieces("x" * 100_000)] == [50_000, 50_000]


def test_no_more_sections_than_a_matrix_can_show() -> None:
    found = find_sections("".join(f"# Number {n}\n\nText.\n\n" for n in range(1000)))
    assert MAX_SECTIONS // 2 <= len(found) <= MAX_SECTIONS
    assert found[0].title == "Number 0"


def test_no_part_is_refused() -> None:
    with pytest.raises(ValueError, match="parts"):
        find_sections("Ants.", 0)


MARKUP = st.sampled_from(
    ["# A\n", "## B\n", "A\n===\n", "B\n---\n", "1. A\n", "\n", " ", "<h1>", "</h1>", "<h2>x</h2>"]
)


@given(
    st.lists(st.one_of(MARKUP, st.text(max_size=20)), max_size=30).map("".join), st.integers(1, 7)
)
def test_sections_cover_the_whole_text_without_overlap(text: str, parts: int) -> None:
    spans = [section.span for section in find_sections(text, parts)]
    assert (spans[0].start, spans[-1].end) == (0, len(text))
    assert all(a.end == b.start for a, b in pairwise(spans))
    assert len(spans) == 1 or all(span.start < span.end for span in spans)


@pytest.mark.parametrize(
    "piece", ["\n", "# a\n", "=", "a\n===\n\n", "<h1>", "<h1 ", "1. A\n\n", "```\n"]
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (500_000 // len(piece))
    started = time.process_time()
    find_sections(text)
    assert time.process_time() - started < 60.0

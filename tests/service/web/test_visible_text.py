"""Characters that would hide or reorder what a reader sees."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.web.visible_text import visible


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("\0", "␀"),
        ("\x1b", "␛"),
        ("\x7f", "␡"),
        ("\x85", "[U+0085]"),
        ("\u202e", "[U+202E]"),
        ("\u2066", "[U+2066]"),
        ("\ufeff", "[U+FEFF]"),
        ("\ud800", "[U+D800]"),
        ("\uffff", "[U+FFFF]"),
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

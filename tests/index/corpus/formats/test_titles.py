"""Titles of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.corpus.formats.titles import MAX_TITLE, first_line, markdown_title, rst_title, shorten


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

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.sentences import WINDOW_CHARACTERS, split_sentences


def sentences_of(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


def test_abbreviations_and_numbers_do_not_end_a_sentence() -> None:
    text = "Dr. Smith paid 3.50 dollars, e.g. in coins. He left!  Why?"
    assert sentences_of(text) == ["Dr. Smith paid 3.50 dollars, e.g. in coins.", "He left!", "Why?"]


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not() -> None:
    assert sentences_of("A heading\n\nOne sentence\nover two lines.") == [
        "A heading",
        "One sentence\nover two lines.",
    ]


def test_a_stray_quotation_mark_does_not_swallow_the_text() -> None:
    text = 'He said: "' + "This is a sentence. " * 2_000
    longest = max(len(sentence) for sentence in sentences_of(text))
    assert longest <= WINDOW_CHARACTERS


def test_a_window_does_not_cut_a_sentence() -> None:
    text = "This sentence is exactly so long. " * 1_000
    assert set(sentences_of(text)) == {"This sentence is exactly so long."}


@pytest.mark.parametrize(
    "text",
    [
        *("a\x00b. \ud800 lone. \udfff surrogates. 😀. 👩‍👩‍👧‍👦! 🇳🇱?", "." * 10_000, '"' * 10_000),
        *("\n\n" * 10_000, "x" * 1_000_000, "漢字" * 200_000, "A. " * 50_000),
    ],
)
def test_hostile_texts_are_covered(text: str) -> None:
    assert_covers(text)


@given(
    st.text(st.characters(), max_size=300)
    | st.text(st.sampled_from("ab. \n\"'!?(。\ud800"), max_size=300)
)
def test_any_text_is_covered(text: str) -> None:
    assert_covers(text)


def assert_covers(text: str) -> None:
    """Spans are in order, do not overlap, and miss nothing but white space."""
    position = 0
    for start, end in split_sentences(text):
        assert position <= start < end
        assert not text[position:start].strip()
        assert text[start:end] == text[start:end].strip()
        position = end
    assert not text[position:].strip()

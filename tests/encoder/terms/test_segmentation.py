"""Words of scripts without spaces; those of others are what they were."""

import re

from hypothesis import given
from hypothesis import strategies as st

from encoder.terms.segmentation import separate_words, without_diacritics, word_spans, words_of

RUN_OF_LETTERS = re.compile(r"[^\W_]+")  # what a word was before scripts were segmented
SCRIPTS = st.sampled_from("a Zé1_.中国人々〇すカー한เज्ी。\U00020000")


@given(st.text(st.characters(max_codepoint=0x08FF)))
def test_scripts_with_spaces_are_cut_at_what_is_no_letter(text: str) -> None:
    assert words_of(text) == RUN_OF_LETTERS.findall(without_diacritics(text.lower()))


@given(st.text(SCRIPTS))
def test_words_are_whole_and_in_order(text: str) -> None:
    found = word_spans(text)
    assert [word for word, _, _ in found] == words_of(text)
    places = [(begin, end) for _, begin, end in found]
    ends = [0, *(end for _, end in places)]
    assert all(end <= begin < after for end, (begin, after) in zip(ends, places, strict=False))
    left = "".join(item for place, item in enumerate(text) if not covered(place, places))
    assert not RUN_OF_LETTERS.search(left)
    without_spaces = separate_words(text).replace(" ", "")
    assert without_spaces == text.replace(" ", "")


def covered(place: int, places: list[tuple[int, int]]) -> bool:
    return any(begin <= place < end for begin, end in places)


def test_words_of_mixed_scripts() -> None:
    """`tests/encoder/test_languages.py` has one text of each language."""
    assert words_of("北京大学的2024年iPhone发布会") == [
        *("北京大学", "的", "2024", "年", "iphone", "发布会"),
    ]
    assert words_of("東京タワーへ行きました") == ["東京", "タワー", "へ", "行", "きました"]
    text = "Ran (乱, Ran) is a film by Kurosawa (黒澤 明); दिल is Dil."
    english = [word for word in words_of(text) if word.isascii()]
    assert english == ["ran", "ran", "is", "a", "film", "by", "kurosawa", "is", "dil"]
    assert separate_words("学生参加比赛。") == " 学生  参加  比赛 。"
    assert separate_words("Ants dig.") == "Ants dig."

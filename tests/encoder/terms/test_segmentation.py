"""Words of scripts without spaces; those of English are what they were."""

import argparse
import decimal
import inspect
import re
import typing
import unicodedata
import unittest
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from encoder.golden import GOLDEN_TEXTS
from encoder.terms.segmentation import find_words, separate_words, split_words
from index.lexical.terms import count_terms, words_of

RUN_OF_LETTERS = re.compile(r"[^\W_]+")  # what a word was before scripts were segmented
SCRIPTS = st.sampled_from("a Zé1_.中国人々〇すカー한เज्ी。\U00020000")


def english_texts() -> list[str]:
    paths = [Path(module.__file__) for module in (argparse, decimal, inspect, typing, unittest)]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return [*texts, *(text for text in GOLDEN_TEXTS if text.isascii())]


def plain(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def test_words_and_terms_of_english_do_not_change() -> None:
    texts = english_texts()
    assert sum(map(len, texts)) > 100_000
    for text in texts:
        words = RUN_OF_LETTERS.findall(plain(text))
        assert split_words(plain(text)) == words
        short = [word for word in words if len(word) <= 64]
        assert words_of(text) == short
        counted = count_terms(text)
        assert {word: counted[word] for word in short} == Counter(short)
        assert separate_words(text) is text


@given(st.text(st.characters(max_codepoint=0x08FF)))
def test_scripts_with_spaces_are_cut_at_what_is_no_letter(text: str) -> None:
    assert split_words(text) == RUN_OF_LETTERS.findall(text)


@given(st.text(SCRIPTS))
@settings(deadline=None)  # the dictionary is loaded once
def test_words_are_whole_and_in_order(text: str) -> None:
    places = list(find_words(text))
    assert [text[begin:end] for begin, end in places] == split_words(text)
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
        "北京大学",
        "的",
        "2024",
        "年",
        "iphone",
        "发布会",
    ]
    assert words_of("東京タワーへ行きました") == ["東京", "タワー", "へ", "行", "きました"]
    text = "Ran (乱, Ran) is a film by Kurosawa (黒澤 明); दिल is Dil."
    english = [word for word in words_of(text) if word.isascii()]
    assert english == ["ran", "ran", "is", "a", "film", "by", "kurosawa", "is", "dil"]
    assert separate_words("学生参加比赛。") == " 学生  参加  比赛 。"

"""Paraphrases by rule, at three strengths: what a person does when rewording a passage.

Words are replaced from a small table of synonyms, short forms and numbers are rewritten,
filler words are dropped, halves of a sentence and neighbouring sentences change places. The
rules do not use what the aligner looks for.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Strength = Literal["light", "medium", "strong"]

# In both directions: each word of a pair is replaced by the other.
_PAIRS = (
    "use employ", "return yield", "function routine", "object entity", "list sequence",
    "create make", "begin start", "end finish", "big large", "small little", "show display",
    "find locate", "get obtain", "give provide", "help assist", "need require", "keep retain",
    "change alter", "choose select", "build construct", "buy purchase", "call invoke",
    "check verify", "name label", "number count", "way manner", "kind type", "part portion",
    "place location", "often frequently", "also additionally", "but however", "because since",
    "if whenever", "about concerning", "before prior", "many numerous", "most majority",
    "new recent", "old former", "main principal", "important significant", "different distinct",
    "same identical", "usually normally", "only solely", "first initial", "last final",
    "whole entire", "error fault", "value quantity", "method procedure", "argument parameter",
    "string text", "file document", "given supplied", "default standard", "set collection",
    "specified stated", "contains holds", "used employed", "returns yields", "called invoked",
    "raised thrown", "read scanned", "written recorded", "must should", "may might",
    "city town", "country nation", "war conflict", "people persons", "began started",
    "became turned", "known recognised", "made produced", "found discovered",
    "population inhabitants",
    "century era", "area region", "river stream", "house building", "work labour", "world globe",
    "year twelvemonth", "large sizeable", "several some", "during throughout", "between amid",
    "near close", "death demise", "power might", "rule govern", "led headed", "won gained",
    "animals creatures", "water liquid", "food nourishment", "light glow", "child infant",
    "example instance", "however nevertheless", "therefore hence", "although though",
    "include comprise", "including comprising", "allow permit", "allows permits", "support back",
)  # fmt: skip
_EXCHANGED = {
    one: other
    for pair in _PAIRS
    for one, other in (pair.split(), pair.split()[::-1])
}  # fmt: skip
_SHORT_FORMS = (
    ("do not", "don't"), ("does not", "doesn't"), ("is not", "isn't"), ("are not", "aren't"),
    ("cannot", "can't"), ("will not", "won't"), ("it is", "it's"), ("was not", "wasn't"),
)  # fmt: skip
_NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)  # fmt: skip
_DIGITS = re.compile(r"\b(1?\d|20)\b")
_FILLERS = frozenset(
    ("very", "also", "just", "then", "that", "this", "such", "so", "quite", "rather", "already",
     "even", "still", "the")
)  # fmt: skip
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class _Rules:
    """Probability of each rule where it can be used."""

    exchange: float
    drop_filler: float
    drop_any: float
    swap_halves: float
    swap_sentences: float


_RULES: dict[Strength, _Rules] = {
    "light": _Rules(0.6, 0.3, 0.02, 0.0, 0.0),
    "medium": _Rules(0.9, 0.5, 0.06, 0.3, 0.2),
    "strong": _Rules(1.0, 0.7, 0.15, 0.6, 0.5),
}


def paraphrase(sentences: Sequence[str], strength: Strength, chance: random.Random) -> list[str]:
    """Return other words for some sentences that follow each other; none is empty."""
    rules = _RULES[strength]
    found = [_reworded(sentence, rules, chance) for sentence in sentences]
    number = 0
    while number + 1 < len(found):
        if chance.random() < rules.swap_sentences:
            found[number], found[number + 1] = found[number + 1], found[number]
            number += 1
        number += 1
    return found


def edit_lightly(text: str, chance: random.Random, share: float = 0.02) -> str:
    """Return a text with some of its words dropped or doubled: a copy with typing errors."""

    def slip(match: re.Match[str]) -> str:
        if chance.random() >= share:
            return match[0]
        return chance.choice(["", f"{match[0]} {match[0]}"])

    return _WORD.sub(slip, text)


def _reworded(sentence: str, rules: _Rules, chance: random.Random) -> str:
    for long, short in _SHORT_FORMS:
        if chance.random() < rules.exchange:
            sentence = sentence.replace(long, short)
    if chance.random() < rules.exchange:
        sentence = _DIGITS.sub(lambda match: _NUMBERS[int(match[1])], sentence)
    if chance.random() < rules.swap_halves:
        first, comma, second = sentence.rstrip(" .").partition(", ")
        sentence = f"{second}, {first}." if comma else sentence
    return _WORD.sub(lambda match: _other_word(match[0], rules, chance), sentence) or sentence


def _other_word(word: str, rules: _Rules, chance: random.Random) -> str:
    lowered = word.lower()
    if lowered in _FILLERS:
        return "" if chance.random() < rules.drop_filler else word
    if chance.random() < rules.drop_any:
        return ""
    other = _EXCHANGED.get(lowered)
    if other is None or chance.random() >= rules.exchange:
        return word
    return other.capitalize() if word[0].isupper() else other

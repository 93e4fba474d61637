"""Function words: the language that a text is in decides."""

import pytest

from encoder.terms.function_words import function_words
from encoder.terms.segmentation import words_of


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("They die in war, and the door to the bay was open.", "they in and the to was"),
        (
            "Die Oper war gut, weil der Kläger die Frist nicht versäumt hat.",
            "die war weil nicht der hat",
        ),
        ("La casa de la montaña y el río", "la de y el"),
        ("Le chat est sur la table et il dort.", "le est sur la et il"),
        ("Батареи хранят энергию, и это выгодно для всех", "и это для всех"),
        ("我们在家里的书房看了一本关于历史的书", "我们 在 的 了"),
        ("هوا امروز سرد است و باران", "امروز است و"),
        ("कौन है वह आदमी जो यहाँ है", "कौन है वह जो यहाँ"),
        ("Det är en bil som står på gatan.", "det ar en som pa"),
        ("the van der Waals force and the de Broglie wave", "the and"),
        *((word, "") for word in ("war", "die", "fur", "van", "bay", "")),
    ],
)
def test_function_words_are_those_of_the_language(text: str, left_out: str) -> None:
    words = set(words_of(text))
    assert function_words(words) & words == set(left_out.split())


def test_a_text_of_two_languages_is_read_without_those_of_both() -> None:
    german = "Das Gericht wies die Klage ab, weil der Kläger die Frist nicht eingehalten hatte."
    english = "The court dismissed the claim, as the plaintiff had not been in time."
    words = set(words_of(f"{german} {english}"))
    assert {"die", "weil", "der", "the", "had", "not"} <= function_words(words) & words

"""Names, or the sentences with them, are removed from texts; texts are cut after words."""

import pytest

from training.sources.linked_document import LinkedDocument, Mention
from training.sources.masking import cut_words, mask_names, remove_spans

TEXT = "It rains in Paris. Rome is far. Paris and Rome are old.\n\nThe end is near."


def named(text: str, **targets: str) -> LinkedDocument:
    mentions = [
        Mention(start, start + len(name), target)
        for target, name in targets.items()
        for start in range(len(text))
        if text.startswith(name, start)
    ]
    return LinkedDocument("x", "X", text, frozenset(targets), tuple(sorted(mentions)))


def test_the_names_of_linked_documents_are_removed() -> None:
    document = named(TEXT, p="Paris", r="Rome")
    assert mask_names(document, ["p"], 1, 0, "name") == TEXT.replace("Paris ", "").replace(
        "Paris", ""
    )
    assert mask_names(document, ["q"], 1, 0, "name") == TEXT
    assert mask_names(document, ["p", "r"], 0, 0, "name") == TEXT


def test_whole_sentences_are_removed() -> None:
    document = named(TEXT, p="Paris", r="Rome")
    assert mask_names(document, ["p"], 1, 0, "sentence") == "Rome is far. \n\nThe end is near."
    assert mask_names(document, ["p", "r"], 1, 0, "sentence") == "\n\nThe end is near."


def test_a_name_over_two_sentences_takes_both() -> None:
    text = "One is here. It is St. Louis. Two is there."
    start = text.index("here")
    document = LinkedDocument("x", "X", text, frozenset("l"), (Mention(start, start + 8, "l"),))
    assert mask_names(document, ["l"], 1, 0, "sentence") == "Two is there."


def test_a_share_of_the_links_is_masked_and_each_link_everywhere() -> None:
    names = {f"t{number}": f"Name{number:03}" for number in range(300)}
    text = " ".join([*names.values(), *names.values()])
    document = named(text, **names)
    left = mask_names(document, list(names), 0.3, 0, "name").split()
    assert len(left) / 600 == pytest.approx(0.7, abs=0.08)
    assert all(left.count(name) == 2 for name in left)
    assert mask_names(document, list(names), 0.3, 1, "name").split() != left
    few = mask_names(document, ["t0", "t1"], 0.3, 0, "name").split()  # draws are independent
    assert [n for n in left if n < "Name002"] == [n for n in few if n < "Name002"]


def test_spans_are_removed_without_doubled_spaces() -> None:
    assert remove_spans("see open(2) here", [(4, 11)]) == "see here"
    assert remove_spans("open(2) here", [(0, 7)]) == "here"
    assert remove_spans("see (open(2)) and\n  x", [(5, 12)]) == "see () and\n  x"
    assert remove_spans("a b c", []) == "a b c"


def test_texts_are_cut_after_words() -> None:
    assert cut_words(" one  two\n\nthree four", 3) == " one  two\n\nthree"
    assert cut_words("one two", 2) == cut_words("one two", 9) == cut_words("one two", None)
    assert cut_words("a a a a", 2) == "a a"

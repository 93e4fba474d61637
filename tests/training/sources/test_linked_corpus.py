"""Corpora with links: splits, popular targets, masked names."""

from dataclasses import replace

import pytest

from training.sources import linked_corpus
from training.sources.linked_corpus import (
    CorpusOptions,
    LinkedDocument,
    Mention,
    choose_parts,
    mask_names,
    select,
    without,
)

ALL = CorpusOptions(min_words=1, held_out=0)


def document(name: str, *links: str, words: int = 5) -> LinkedDocument:
    text = f"{name} " + "word " * (words - 1)
    return LinkedDocument(name, name, text, frozenset(links))


def test_links_are_between_documents_that_exist_and_count_once() -> None:
    found = select(
        [document("b", "a", "b", "gone"), document("a", "b"), document("c", "b"), document("d")],
        ALL,
    )
    assert found.links == {("a", "b"), ("b", "c")}
    assert [kept.id for kept in found.documents] == ["b", "a", "c"]
    assert found.parts == {"b": "train", "a": "train", "c": "train"}
    assert found.left_out["documents without a link"] == 1


def test_short_and_repeated_documents_are_left_out() -> None:
    again = replace(document("c", "a"), text=document("a").text)
    short = document("d", "a", words=3)
    found = select(
        [document("a", "b", "c", "d"), document("b"), again, short], replace(ALL, min_words=4)
    )
    assert found.links == {("a", "b")}
    assert (found.left_out["documents repeated"], found.left_out["documents too short"]) == (1, 1)


def test_a_document_that_too_many_link_to_is_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [document("hub", "a"), *(document(name, "hub", "x") for name in "abc")]
    documents.append(document("x"))
    monkeypatch.setattr(linked_corpus, "MAX_NAMED", 3)
    assert ("b", "hub") in select(documents, ALL).links
    monkeypatch.setattr(linked_corpus, "MAX_NAMED", 2)
    found = select(documents, ALL)
    assert found.links == {("a", "hub")}  # the hub still names others
    assert found.left_out["targets named too often"] == 2
    assert found.left_out["links to these targets"] == 6


def test_no_link_crosses_the_splits() -> None:
    names = [f"d{number}" for number in range(400)]
    documents = [document(name, *names[n : n + 12]) for n, name in enumerate(names)]
    found = select(documents, CorpusOptions(min_words=1, held_out=0.2))
    counts = {part: list(found.parts.values()).count(part) for part in ("train", "valid", "test")}
    assert 200 < counts["train"] < 280
    assert min(counts["valid"], counts["test"]) > 50
    assert all(found.parts[a] == found.parts[b] for a, b in found.links)
    assert found.left_out["links across splits"] > 1000


def test_parts_depend_on_the_texts_alone() -> None:
    documents = [document(str(number)) for number in range(200)]
    parts = choose_parts(documents, 0.1)
    renamed = [replace(each, id=f"x{each.id}", title="t") for each in reversed(documents)]
    assert choose_parts(renamed, 0.1) == {f"x{name}": part for name, part in parts.items()}
    assert set(parts.values()) == {"train", "valid", "test"}


def test_removing_documents_removes_those_that_then_have_no_link() -> None:
    found = select([document("a", "b"), document("c", "d"), document("b"), document("d")], ALL)
    rest = without(found, ["a"], "gone")
    assert [kept.id for kept in rest.documents] == ["c", "d"]
    assert rest.links == {("c", "d")}
    assert rest.left_out["gone"] == rest.left_out["documents without a link"] == 1


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
    assert mask_names(document, ["p"], 1, "name") == TEXT.replace("Paris ", "").replace("Paris", "")
    assert mask_names(document, ["q"], 1, "name") == TEXT
    assert mask_names(document, ["p", "r"], 0, "name") == TEXT


def test_whole_sentences_are_removed() -> None:
    document = named(TEXT, p="Paris", r="Rome")
    assert mask_names(document, ["p"], 1, "sentence") == "Rome is far. \n\nThe end is near."
    assert mask_names(document, ["p", "r"], 1, "sentence") == "\n\nThe end is near."


def test_a_name_over_two_sentences_takes_both() -> None:
    text = "One is here. It is St. Louis. Two is there."
    start = text.index("here")
    document = LinkedDocument("x", "X", text, frozenset("l"), (Mention(start, start + 8, "l"),))
    assert mask_names(document, ["l"], 1, "sentence") == "Two is there."


def test_a_share_of_the_links_is_masked_and_each_link_everywhere() -> None:
    names = {f"t{number}": f"Name{number:03}" for number in range(300)}
    text = " ".join([*names.values(), *names.values()])
    document = named(text, **names)
    left = mask_names(document, list(names), 0.3, "name").split()
    assert len(left) / 600 == pytest.approx(0.7, abs=0.08)
    assert all(left.count(name) == 2 for name in left)
    few = mask_names(document, ["t0", "t1"], 0.3, "name").split()  # draws are independent
    assert [n for n in left if n < "Name002"] == [n for n in few if n < "Name002"]


@pytest.mark.parametrize(
    ("text", "name", "left"),
    [
        ("see open(2) here", "open(2)", "see here"),
        ("open(2) here", "open(2)", "here"),
        ("see (open(2)) and\n  x", "open(2)", "see () and\n  x"),
    ],
)
def test_names_are_removed_without_doubled_spaces(text: str, name: str, left: str) -> None:
    assert mask_names(named(text, o=name), ["o"], 1, "name") == left
